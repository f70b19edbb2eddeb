//! The vocabulary of decisions: resources, requirements, taints, instance types, money, pods and nodes
//! as scheduling sees them, and the snapshot that decisions are made from.
//!
//! Pure values and their algebra. Conversions from the Kubernetes API sit at the edge (`from_api`, `From`);
//! nothing in here knows a client, a task or a clock.

pub mod buffer;
pub mod catalogue;
pub mod churn;
pub mod cron;
pub mod default_spread;
pub mod disruption;
pub mod instance_type;
pub mod labels;
pub mod node_count;
pub mod overlay;
pub mod pdb;
pub mod pod;
pub mod price;
pub mod quantity;
pub mod reboot;
pub mod repair;
pub mod requirement;
pub mod requirements;
pub mod reservation;
pub mod resources;
pub mod selector;
pub mod snapshot;
pub mod taint;
pub mod volume;

pub use catalogue::{MAX_INSTANCE_TYPES, MinValuesPolicy, TooFewValues};
pub use instance_type::{AllocatableGroup, InstanceType, Offering, Overhead};
pub use labels::{KnownLabels, Labels};
pub use node_count::NodeCount;
pub use pod::{Constraints, Pod};
pub use price::Price;
pub use quantity::Quantity;
pub use requirement::{Operator, Requirement};
pub use requirements::{Incompatible, Requirements, Undefined};
pub use reservation::{ReservationId, Stock};
pub use resources::Resources;
pub use selector::Selector;
pub use snapshot::{Node, Pool, Snapshot};
pub use taint::{Effect, Taint, Toleration};
pub use volume::Volumes;
