//! A parallel search with the result of a sequential one.

use std::{
    convert::Infallible,
    num::NonZero,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// The first item, in order, for which `look` finds something, and why it did not for those before it.
///
/// `look` must depend on nothing but the item; then the answer does not depend on the number of threads.
pub(crate) fn first_found<T: Sync, F: Send, E: Send>(
    threads: NonZero<usize>,
    items: &[T],
    look: impl Fn(&T) -> Result<F, E> + Sync,
) -> (Vec<E>, Option<(usize, F)>) {
    let next = AtomicUsize::new(0);
    let best = AtomicUsize::new(items.len());
    let seen = Mutex::new(Vec::new());
    let work = || {
        let mut mine = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            // Everything before the best is still looked at, by the thread that took it.
            if at >= best.load(Ordering::Relaxed) {
                break;
            }
            let answer = look(&items[at]);
            if answer.is_ok() {
                best.fetch_min(at, Ordering::Relaxed);
            }
            mine.push((at, answer));
        }
        seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(mine);
    };
    match threads.get().min(items.len()) {
        0 | 1 => work(),
        threads => thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        }),
    }
    let mut seen = seen.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    seen.sort_unstable_by_key(|(at, _)| *at);
    let mut in_vain = Vec::new();
    for (at, answer) in seen {
        match answer {
            Ok(found) => return (in_vain, Some((at, found))),
            Err(why) => in_vain.push(why),
        }
    }
    (in_vain, None)
}

/// What `look` says of every item, in their order.
pub(crate) fn every<T: Sync, R: Send>(
    threads: NonZero<usize>,
    items: &[T],
    look: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    first_found(threads, items, |item| Err::<Infallible, R>(look(item))).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wins_whatever_the_number_of_threads() {
        let items: Vec<u32> = (0..1000).collect();
        for threads in [1, 2, 3, 16] {
            for goal in [0, 1, 500, 999, 5000] {
                let look = |item: &u32| if *item >= goal { Ok(*item * 2) } else { Err(*item) };
                let (in_vain, found) = first_found(NonZero::new(threads).unwrap(), &items, look);
                let expected = (goal < 1000).then_some((goal as usize, goal * 2));
                assert_eq!(found, expected, "{threads} threads");
                assert_eq!(in_vain, (0..goal.min(1000)).collect::<Vec<_>>(), "{threads} threads");
            }
        }
    }
}
