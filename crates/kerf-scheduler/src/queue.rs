//! The order in which pods are tried.

use std::collections::VecDeque;

/// What found no place goes to the back and is tried again as long as others find one: they may be what it waits
/// for.
#[derive(Debug)]
pub(crate) struct Queue {
    pods: VecDeque<u32>,
    /// How long the queue was when the pod was last put back.
    length_at_push: Vec<usize>,
}

impl Queue {
    /// `pods` are numbers below `end`.
    pub(crate) fn new(pods: Vec<u32>, end: usize) -> Self {
        Self { pods: pods.into(), length_at_push: vec![0; end] }
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

    #[test]
    fn ends_after_a_round_without_progress() {
        let mut queue = Queue::new(vec![0, 1, 2], 3);
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
