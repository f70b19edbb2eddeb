//! The reconcilers of the operator

pub mod settings;

pub use settings::Settings;
