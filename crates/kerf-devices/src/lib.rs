//! Devices of dynamic resource allocation: who publishes them, who asks for them, and who gets which.
//!
//! # The model
//!
//! ```text
//! ResourceSlices ──► Slice ──► Pools ──► Inventory ─┐
//!                                      (of a node)  │
//! ResourceClaim  ──► Claim ──► Demand ──────────────┼──► Allocator::allocate ──► Allocation, or Refusal
//! DeviceClasses  ──────────────┘                    │
//! statuses of claims ──► Standing ──► Usage ────────┘
//! ```
//!
//! * A driver publishes **slices** of a **pool**. [`Pools::gather`] keeps the newest generation of each pool. A pool that is not complete,
//!   or that contradicts itself, cannot be used ([`pool::Unusable`]).
//! * An [`Inventory`] is what one node can use of the pools, in the order in which devices are tried: pools by driver and name, slices by
//!   name, devices as they stand. It can be made for a node that exists, and for one that does not, from the slices that it would have.
//! * A [`Claim`] has requests: for a number of devices or for all, exactly or as alternatives. A device has to match the CEL
//!   [`selector`]s of its class and of the request, must not be tainted unless that is tolerated, and needs the capacity asked for.
//!   Constraints say what the devices of several requests have to have in common. [`Allocator::demand`] compiles that.
//! * [`Usage`] is what allocations have taken: whole devices, or shares of devices that allow several allocations. What is left of
//!   counters, which the partitions of a device share, follows from it.
//! * [`Allocator::allocate`] searches for devices for all claims of a pod at once, and says why there are none: a [`Refusal`] names the
//!   claim, the request, the selector, and the numbers.
//! * What is allocated is a [`Standing`]: all pods that name the claim run where its devices can be used.
//!
//! # What holds
//!
//! * **Exact.** A search that ends finds the first allocation in the order of kube-scheduler's search, if there is one. A search that
//!   tries more devices than its budget ends as [`Refusal::SearchEnded`]. The budget counts tries, not time.
//! * **The same every time.** The answer depends on the slices, the usage and the claims, and on nothing else: no clock, no hash order,
//!   nothing that was asked before.
//! * **Bounded.** Selectors have a bound on their length, their depth and what an evaluation may cost. Nothing that a user can write
//!   ends in a panic.
//!
//! # Beside kube-scheduler
//!
//! Kerf predicts what kube-scheduler will allocate; its sources of July 2026 were read for this, and it has not been run beside it yet. Where its search gives a pod up on purpose, so does this one
//! ([`Refusal::ends_scheduling`]): when a selector fails for a device that is tried, when a request for all devices meets a pool that
//! cannot be used, and when a constraint excludes one of all devices. In these points the API's documentation is followed where
//! kube-scheduler's search differs from it:
//!
//! | here | kube-scheduler, July 2026 |
//! |---|---|
//! | admin access consumes no counters and no capacity, and is in no other claim's way | it needs and consumes both, and keeps later claims of the pod away (kubernetes#140729, accepted as a bug) |
//! | `distinctAttribute` compares all devices of a request | only the last device of each request is compared |
//! | a request for all needs each device that has the capacity, also where others have too much of it | it leaves such devices out |
//! | counters belong to a pool of a driver | pools of the same name share what is left of them, whatever their driver |
//! | shares that are tried and dropped give their counters back | they keep them until the search ends |
//! | steps of a capacity can be fractions | they are rounded to whole numbers |
//! | device names are unique in their pool | in what the node sees of the pool |
//! | devices out of reach are not asked by selectors | selectors see all devices of a slice that leaves the reach to its devices |
//!
//! A DeviceTaintRule has no place here: whoever reads the slices adds its taints to the devices. What `nodeAllocatableResourceMappings`
//! make of a device is not looked at, and binding conditions only count for the order.

pub mod allocator;
pub mod amount;
pub mod capacity;
pub mod claim;
pub mod device;
pub mod inventory;
pub mod pool;
pub mod reach;
pub mod refusal;
pub mod selector;
pub mod slice;
pub mod usage;

pub use allocator::{Allocation, Allocator, Demand, Nodes};
pub use amount::Amount;
pub use claim::standing::{AllocatedDevice, Standing};
pub use claim::{Claim, ClaimId, DeviceClass, DeviceClasses};
pub use device::{Device, DeviceId};
pub use inventory::Inventory;
pub use pool::Pools;
pub use reach::{NodeSelector, Reach};
pub use refusal::Refusal;
pub use slice::{PoolId, Slice};
pub use usage::Usage;
