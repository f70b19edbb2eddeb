//! Days in an account in which everything goes wrong. A few hours of a few seeds are what a test run can afford; `cargo xtask aws seeds`
//! lives a thousand days.

use kerf_stories_aws::day::day;

const SEEDS: u64 = 3;
const HOURS: u64 = 4;

#[test]
fn nothing_leaks_nothing_is_doubled_no_limit_is_exceeded_and_every_pod_runs() {
    let mut launched = 0;
    for seed in 0..SEEDS {
        println!("seed {seed}");
        launched += day(seed, HOURS).launched;
    }
    // Days on which nothing happens would show nothing.
    assert!(launched > 12, "only {launched} instances");
}
