//! The controllers of EC2NodeClasses.

mod life;
mod refusals;
mod stage;
mod static_capacity;
mod upkeep;
