//! The stories with a provider of its own: those of the operator, as they are played with KWOK, and those of what only such a
//! provider brings. On the testbed, in virtual time.

macro_rules! stage {
    (virtual_time $settings:ident $($story:ident),+) => {};
    ($stage:ident $settings:ident $($story:ident),+) => {
        $(#[tokio::test(start_paused = true)]
        async fn $story() {
            let settings = kerf_stories::stories::settings::$settings();
            let cloud = std::sync::Arc::new(kerf_stories::clouds::Example);
            let world = kerf_stories::World::with_cloud(cloud, 7, settings);
            chapter::$story(world.await).await;
        })+
    };
}

macro_rules! play {
    ($($chapter:ident at $($path:ident)::+ {
        $($stage:ident($settings:ident): $($story:ident),+;)+
    })+) => {
        $(mod $chapter {
            #[allow(unused_imports, reason = "a chapter may need virtual time for all its stories")]
            use kerf_stories::chapters::$($path)::+ as chapter;

            $(stage! { $stage $settings $($story),+ })+
        })+
    };
}

kerf_stories::stories! { play }

mod own {
    use kerf_stories::chapters::example_provider as chapter;

    stage! {
        own defaults
        a_controller_of_the_provider_says_whether_a_class_can_be_used,
        a_pod_follows_its_volume_by_the_names_of_the_provider,
        a_reservation_is_used_up_before_anything_is_bought,
        a_node_waits_until_its_provider_lets_it_register,
        an_interrupted_node_is_replaced_and_counted_by_its_cause,
        labels_of_the_provider_are_restricted_to_those_it_knows
    }
}
