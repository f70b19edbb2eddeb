//! What a value was at any time not long ago.

/// Milliseconds since the start of the run.
pub type Millis = i64;

/// The values of something, each from the time when it came to be.
#[derive(Clone, Debug)]
pub(super) struct History<T>(Vec<(Millis, T)>);

impl<T> Default for History<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> History<T> {
    /// Forgets what is older than `horizon`, but for the value that was in force then.
    pub(super) fn push(&mut self, now: Millis, value: T, horizon: Millis) {
        if self.0.last().is_some_and(|(_, last)| *last == value) {
            return;
        }
        self.0.push((now, value));
        let old = self.0.iter().skip(1).take_while(|(at, _)| *at <= horizon).count();
        self.0.drain(..old);
    }

    /// Each value that was in force at some time since then.
    pub(super) fn since(&self, then: Millis) -> impl Iterator<Item = &T> {
        let first = self.0.iter().rposition(|(at, _)| *at <= then).unwrap_or(0);
        self.0[first..].iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::History;

    #[test]
    fn knows_all_that_was_in_force_since_then() {
        let mut history = History::default();
        for (now, value) in [(0, 'a'), (10, 'b'), (20, 'b'), (30, 'c')] {
            history.push(now, value, 0);
        }
        let since = |then| history.since(then).collect::<String>();
        assert_eq!(
            [since(0), since(9), since(10), since(29), since(30)],
            ["abc", "abc", "bc", "bc", "c"]
        );
        history.push(40, 'd', 30);
        assert_eq!(history.since(0).collect::<String>(), "cd");
    }
}
