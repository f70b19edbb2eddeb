//! Every story on the testbed, in virtual time.

use kerf_controllers::{
    Settings,
    settings::{Fraction, SavingsThreshold},
};
use kerf_stories::{World, chapters, stories};
use kerf_testbed::{Fault, Faults, Matching, Testbed, Verb};

macro_rules! play {
    ($($chapter:ident at $($path:ident)::+ {
        $($stage:ident($settings:ident): $($story:ident),+;)+
    })+) => {
        $(mod $chapter {
            use kerf_stories::{World, chapters::$($path)::+ as chapter, stories::settings};

            $($(#[tokio::test(start_paused = true)]
            async fn $story() {
                let world = World::on_testbed(7, settings::$settings()).await;
                let witness = world.witness();
                chapter::$story(world).await;
                witness.plan_decides_as_the_operator().await;
            })+)+
        })+
    };
}

stories! { play }

/// The API refuses the Nodes that this provider would launch.
#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_launched_is_given_up_after_five_minutes() {
    let faults = Faults::seeded(7);
    let launches = Matching::any().verb(Verb::Create).resource("nodes");
    faults.at_rate(1.0, launches, Fault::InternalError);
    let world = World::with_mortal_operator(7, Settings::default(), &faults);
    chapters::launching::a_claim_that_cannot_be_launched_is_given_up_after_five_minutes(world)
        .await;
}

#[test]
fn every_consolidation_saves_what_it_promised() {
    let mut commands = 0;
    for seed in 1..=4 {
        let played = Testbed::in_virtual_time(async {
            let world = World::on_testbed(seed, parity()).await;
            chapters::disruption::savings::every_consolidation_saves_what_it_promised(world, seed)
                .await
        });
        commands += played.expect("a runtime can be made");
    }
    assert!(commands >= 8, "hardly anything was consolidated: {commands}");
}

/// As Karpenter decides.
fn parity() -> Settings {
    let mut settings = Settings::default();
    settings.churn.utilization_threshold = Fraction::ONE;
    settings.churn.savings_threshold = SavingsThreshold::OFF;
    settings
}
