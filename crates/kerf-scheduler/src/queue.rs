//! The order in which pods are tried.

use std::collections::VecDeque;
use std::sync::Arc;

use kerf_model::Pod;

use crate::algebra::id;
use crate::lanes::{CPU_LANE, Lanes, MEMORY_LANE};

/// The largest pods first, because small ones fill gaps. What found no place goes to the back and is tried again
/// as long as others find one: they may be what it waits for.
#[derive(Debug)]
pub(crate) struct Queue {
    pods: VecDeque<u32>,
    /// How long the queue was when the pod was last put back.
    length_at_push: Vec<usize>,
}

impl Queue {
    pub(crate) fn new(pods: &[Arc<Pod>], requests: impl Fn(u32) -> Option<Lanes>) -> Self {
        let mut sized: Vec<_> = (0..id(pods.len()))
            .filter_map(|pod| requests(pod).map(|lanes| (lanes[CPU_LANE], lanes[MEMORY_LANE], pod)))
            .collect();
        sized.sort_unstable_by(|a, b| {
            let tie = |pod: u32| {
                let pod = &pods[pod as usize];
                (pod.created, &pod.uid)
            };
            (b.0, b.1).cmp(&(a.0, a.1)).then_with(|| tie(a.2).cmp(&tie(b.2)))
        });
        Self {
            pods: sized.into_iter().map(|(_, _, pod)| pod).collect(),
            length_at_push: vec![0; pods.len()],
        }
    }

    /// Ends when the next pod has seen the whole queue go by without any other finding a place.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let next = *self.pods.front()?;
        if self.length_at_push[next as usize] == self.pods.len() {
            return None;
        }
        self.pods.pop_front()
    }

    pub(crate) fn push_back(&mut self, pod: u32) {
        self.pods.push_back(pod);
        self.length_at_push[pod as usize] = self.pods.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, created: Option<i64>) -> Arc<Pod> {
        let created = created
            .map(|second| format!("2026-01-01T00:00:{second:02}Z").parse().expect("a timestamp"));
        Arc::new(Pod { uid: uid.to_owned(), created, ..Pod::default() })
    }

    #[test]
    fn larger_then_older_then_smaller_uid() {
        let pods = [
            pod("f", Some(2)),
            pod("e", Some(1)),
            pod("d", Some(1)),
            pod("c", None),
            pod("b", None),
            pod("a", None),
        ];
        let sizes = [[1, 1], [1, 1], [1, 1], [1, 2], [2, 0], [1, 1]];
        let mut queue = Queue::new(&pods, |pod| Some(sizes[pod as usize].into_iter().collect()));
        let order: Vec<_> =
            std::iter::from_fn(|| queue.pop()).map(|pod| pods[pod as usize].uid.as_str()).collect();
        assert_eq!(order, ["b", "c", "a", "d", "e", "f"]);
    }

    #[test]
    fn ends_after_a_round_without_progress() {
        let pods = [pod("a", None), pod("b", None), pod("c", None)];
        let mut queue = Queue::new(&pods, |_| Some([1, 1].into_iter().collect()));
        // The second finds a place at once, so the others are tried once more.
        let mut tries = Vec::new();
        while let Some(pod) = queue.pop() {
            tries.push(pod);
            if pod != 1 {
                queue.push_back(pod);
            }
        }
        assert_eq!(tries, [0, 1, 2, 0]);
    }
}
