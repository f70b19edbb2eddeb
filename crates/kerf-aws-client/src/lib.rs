//! The calls of AWS that Kerf makes.
