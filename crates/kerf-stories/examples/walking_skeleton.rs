//! `walking_skeleton [TIMES]` plays the whole life of a node on the testbed, ten times unless told otherwise, and prints how
//! long each took: from nothing at all, cluster and operator included, to a node that was provisioned for a pending pod,
//! drained and terminated. The first of a process also compiles the rules of our CRDs, as a test program's does.

use std::time::Instant;

use kerf_controllers::Settings;
use kerf_stories::{World, chapters::life_of_a_node::from_pending_pod_to_nothing};
use kerf_testbed::Testbed;

fn main() {
    let times = std::env::args().nth(1).map_or(10, |times| times.parse().expect("a number"));
    for _ in 0..times {
        let begin = Instant::now();
        let started = Testbed::in_virtual_time(async {
            let world = World::on_testbed(7, Settings::default()).await;
            let started = begin.elapsed();
            from_pending_pod_to_nothing(&world).await;
            started
        });
        let started = started.expect("a runtime can be made").as_secs_f64() * 1e3;
        let whole = begin.elapsed().as_secs_f64() * 1e3;
        println!("{whole:6.1} ms, of which {started:.1} ms to start cluster and operator");
    }
}
