//! `static_storm [SEEDS] [FIRST]` plays storms over static pools, a thousand unless told otherwise, and ends with an error at
//! the first that exceeds its limit or does not settle. `static_storm sixty-days` plays the example of the proposal instead, and
//! `static_storm 627-nodes` a dynamic pool that is to stay at 608.

use std::{
    panic::{self, AssertUnwindSafe},
    time::Instant,
};

use kerf_controllers::Settings;
use kerf_stories::{
    World,
    chapters::{
        limits,
        static_capacity::{sixty_days, storm::storm},
    },
};
use kerf_testbed::Testbed;

/// Stories that are too long for a test run.
enum Long {
    SixtyDays,
    ManyNodes,
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let begin = Instant::now();
    let long = match arguments.first().map(String::as_str) {
        Some("sixty-days") => Some(Long::SixtyDays),
        Some("627-nodes") => Some(Long::ManyNodes),
        _ => None,
    };
    if let Some(long) = long {
        Testbed::in_virtual_time(async {
            let world = World::on_testbed(7, Settings::default()).await;
            match long {
                Long::SixtyDays => sixty_days::the_proposals_example(world).await,
                Long::ManyNodes => {
                    limits::a_limit_of_608_nodes_is_kept_when_627_are_wanted(world).await;
                }
            }
        })
        .expect("a runtime can be made");
        println!("played in {:.1} s", begin.elapsed().as_secs_f64());
        return;
    }
    let number = |place: usize, default: u64| {
        arguments.get(place).map_or(default, |argument| argument.parse().expect("a number"))
    };
    let (seeds, first) = (number(0, 1000), number(1, 0));
    let (mut writes, mut at_their_limit) = (0, 0);
    for seed in first..first + seeds {
        let played = panic::catch_unwind(AssertUnwindSafe(|| storm(seed)));
        let storm = played.unwrap_or_else(|_| panic!("the storm of seed {seed}"));
        writes += storm.writes;
        at_their_limit += usize::from(storm.peak == storm.limit);
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{seeds} storms, {at_their_limit} of them up to their limit, none beyond; {writes} writes, {seconds:.1} s"
    );
}
