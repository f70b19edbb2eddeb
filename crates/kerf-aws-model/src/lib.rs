//! What is decided about AWS, without a client and without a clock.

pub mod catalogue;
pub mod class_status;
pub mod class_types;
mod digest;
pub mod drift;
pub mod errors;
pub mod fleet;
pub mod health;
pub mod images;
pub mod instance;
pub mod instance_profile;
pub mod instance_types;
pub mod joining;
pub mod launch;
pub mod launch_template;
pub mod messages;
pub mod offerings;
pub mod permissions;
pub mod prices;
pub mod reservations;
pub mod subnets;
#[cfg(test)]
mod test_launch;
pub mod unavailable;
pub mod user_data;
pub mod zonal_shift;
