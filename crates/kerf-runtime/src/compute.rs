//! Running decisions that take a while without holding up other tasks.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs a long computation without holding up others, where there are other threads for them: they have leases to renew.
///
/// With one thread every task waits. That is what virtual time needs: were the computation on a thread of its own, what
/// others do meanwhile would depend on how fast the machine is, and no run would be like the next.
pub fn compute<T>(work: impl FnOnce() -> T) -> T {
    let several = Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if several { tokio::task::block_in_place(work) } else { work() }
}
