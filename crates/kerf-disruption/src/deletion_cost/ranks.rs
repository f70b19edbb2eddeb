//! Numbers for an order, of which as few as possible change when the order does.

/// The number of the first of all.
const MIDDLE: i64 = -(1 << 30);
/// From one number to the next where there is nothing in between.
const GAP: i64 = 1 << 16;
/// All numbers lie between these two. The lowest of all is for nodes that are leaving.
const BELOW: i64 = i32::MIN as i64 + 1;
const ABOVE: i64 = 0;

/// A rising number for each, given those that they have. The most of them keep theirs: numbers have gaps, into which what is new
/// goes. Where a gap is used up, all are numbered anew.
pub(super) fn ranks(present: &[Option<i32>]) -> Vec<i32> {
    let kept = longest_rise(present);
    let ranks = fill(present, &kept).unwrap_or_else(|| anew(present.len()));
    ranks.into_iter().map(|rank| i32::try_from(rank).unwrap_or(-1)).collect()
}

/// Where the longest strictly rising selection of the numbers stands.
fn longest_rise(present: &[Option<i32>]) -> Vec<usize> {
    // By length: where the selection of that length ends that ends lowest.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; present.len()];
    for (at, number) in present.iter().enumerate() {
        if number.is_none() {
            continue;
        }
        let length = ends.partition_point(|end| present[*end] < *number);
        before[at] = length.checked_sub(1).map(|shorter| ends[shorter]);
        if length == ends.len() {
            ends.push(at);
        } else {
            ends[length] = at;
        }
    }
    let mut rise: Vec<usize> =
        std::iter::successors(ends.last().copied(), |at| before[*at]).collect();
    rise.reverse();
    rise
}

/// The numbers that are kept, and others between them. `None`: somewhere there is no room.
fn fill(present: &[Option<i32>], kept: &[usize]) -> Option<Vec<i64>> {
    if kept.is_empty() {
        return None;
    }
    let mut ranks = Vec::with_capacity(present.len());
    let mut below = None;
    for at in kept.iter().copied().map(Some).chain([None]) {
        let number = at.and_then(|at| present[at]).map(i64::from);
        let missing = at.unwrap_or(present.len()) - ranks.len();
        ranks.extend(between(below, number, missing)?);
        ranks.extend(number);
        below = number;
    }
    Some(ranks)
}

/// So many numbers between two, of which at most one is missing.
fn between(low: Option<i64>, high: Option<i64>, count: usize) -> Option<Vec<i64>> {
    let count = i64::try_from(count).ok()?;
    let room = high.unwrap_or(ABOVE) - low.unwrap_or(BELOW);
    let step = (room / (count + 1)).min(match (low, high) {
        (Some(_), Some(_)) => i64::MAX,
        // Close to the others, so that the next one finds room beside it as well.
        _ => GAP,
    });
    if step == 0 && count > 0 {
        return None;
    }
    let first = match (low, high) {
        (None, Some(high)) => high - step * (count + 1),
        _ => low.unwrap_or(BELOW),
    };
    Some((1..=count).map(|nth| first + nth * step).collect())
}

fn anew(count: usize) -> Vec<i64> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let step = GAP.min((ABOVE - BELOW) / (count.saturating_add(1))).max(1);
    let first = MIDDLE - step * (count / 2);
    (0..count).map(|nth| first + nth * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: i32 = -(1 << 30);
    const STEP: i32 = 1 << 16;

    fn check(present: &[Option<i32>], expected: &[i32]) {
        assert_eq!(ranks(present), expected, "{present:?}");
    }

    #[test]
    fn what_is_in_order_keeps_its_number() {
        check(&[], &[]);
        check(&[None], &[FIRST]);
        check(&[None, None, None], &[FIRST - STEP, FIRST, FIRST + STEP]);
        check(&[Some(-9), Some(-5), Some(-1)], &[-9, -5, -1]);
        // New ones go before, behind and between.
        check(&[None, Some(FIRST)], &[FIRST - STEP, FIRST]);
        check(&[Some(FIRST), None], &[FIRST, FIRST + STEP]);
        check(&[Some(-100), None, Some(-90)], &[-100, -95, -90]);
        check(&[Some(-100), None, None, Some(-91)], &[-100, -97, -94, -91]);
        check(&[Some(-100), None, None], &[-100, -67, -34]);
        // One that is gone leaves the others as they are.
        check(&[Some(-9), Some(-1)], &[-9, -1]);
    }

    #[test]
    fn as_few_as_possible_get_another_number() {
        // The third comes to the front.
        check(&[Some(-30), Some(-50), Some(-40)], &[-50 - STEP, -50, -40]);
        // The first goes to the end.
        check(&[Some(-40), Some(-30), Some(-50)], &[-40, -30, -15]);
        // Two of the same number are told apart.
        check(&[Some(-40), Some(-40)], &[-40 - STEP, -40]);
    }

    #[test]
    fn without_a_gap_all_get_another_number() {
        check(&[Some(-6), None, Some(-5)], &[FIRST - STEP, FIRST, FIRST + STEP]);
        check(&[Some(-1), None], &[FIRST - STEP, FIRST]);
        check(&[None, Some(i32::MIN + 2)], &[FIRST - STEP, FIRST]);
    }

    /// Whatever happens to the order, numbers rise, are negative, and are not the lowest of all.
    #[test]
    fn numbers_always_follow_the_order() {
        let mut random: u64 = 7;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(random >> 33).unwrap() % below
        };
        let mut order: Vec<Option<i32>> = Vec::new();
        let mut rewritten = 0;
        for _ in 0..3000 {
            let at = next(order.len() + 1);
            match next(4) {
                0 if !order.is_empty() => drop(order.remove(at % order.len())),
                1 if !order.is_empty() => {
                    let moved = order.remove(at % order.len());
                    order.insert(next(order.len() + 1), moved);
                }
                _ if order.len() < 60 => order.insert(at, None),
                _ => {}
            }
            let numbers = ranks(&order);
            assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
            assert!(numbers.iter().all(|number| (i32::MIN + 1..0).contains(number)), "{numbers:?}");
            let changes = order.iter().zip(&numbers).filter(|(old, new)| **old != Some(**new));
            rewritten += changes.count();
            order = numbers.into_iter().map(Some).collect();
        }
        assert!(rewritten < 6000, "{rewritten} numbers for 3000 changes");
    }

    #[test]
    fn there_are_numbers_for_more_nodes_than_a_cluster_has() {
        let numbers = ranks(&vec![None; 100_000]);
        assert!(numbers.is_sorted_by(|a, b| a < b) && numbers.iter().all(|number| *number < 0));
        assert!(numbers[0] > i32::MIN + 1);
    }
}
