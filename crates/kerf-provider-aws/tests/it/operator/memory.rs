//! How much memory nodes have is learned once, and outlives the process that learned it.

use std::time::Duration;

use kerf_aws_api::{Ec2NodeClass, annotations};

use super::world::{World, on_demand_m5, options, play};

/// Of the newest claim: what it was launched with.
async fn memory_of_claims(world: &World) -> Vec<String> {
    let mut claims = world.claims().await;
    claims.sort_by_key(|claim| claim.metadata.creation_timestamp.clone());
    let capacity =
        claims.into_iter().filter_map(|claim| claim.status?.capacity.get("memory").cloned());
    capacity.map(|memory| memory.0).collect()
}

#[test]
fn the_memory_of_nodes_is_learned_and_outlives_the_operator() {
    play(async {
        let mut world = World::new(options(), on_demand_m5()).await;
        world.pods_apart(1).await;
        world.pass(Duration::from_secs(5)).await;
        let class = world.api::<Ec2NodeClass>().get("default").await.unwrap();
        let written = class.metadata.annotations.unwrap()[annotations::DISCOVERED_MEMORY].clone();
        // Of 8192 MiB the stand-in's kubelets see 6 % less; the estimate is 7.5 % less.
        assert!(
            written.contains("{\"m5.large\":{\"machineMib\":8192,\"bytes\":8074035200}}"),
            "{written}"
        );

        world.start_operator();
        world.scale(2).await;
        let memory = memory_of_claims(&world).await;
        let bytes: Vec<_> = memory.iter().map(String::as_str).collect();
        assert_eq!(bytes, ["7577Mi", "7700Mi"], "the first by the estimate, the second as learned");
        let writes = world.api::<Ec2NodeClass>().get("default").await.unwrap();
        assert_eq!(writes.metadata.annotations.unwrap()[annotations::DISCOVERED_MEMORY], written);
    });
}
