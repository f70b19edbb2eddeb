//! The stories of `kerf-stories` that need no virtual time, on a real control plane.

use kerf_stories::stories;

macro_rules! play {
    ($($chapter:ident at $($path:ident)::+ {
        $($stage:ident($settings:ident): $($story:ident),+;)+
    })+) => {
        $(mod $chapter {
            #[allow(unused_imports, reason = "a chapter may need virtual time throughout")]
            use kerf_stories::{World, chapters::$($path)::+ as chapter, stories::settings};

            $($(on! { $stage($settings): $story })+)+
        })+
    };
}

macro_rules! on {
    (shared(defaults): $story:ident) => {
        #[tokio::test]
        async fn $story() {
            chapter::$story(World::on_shared_control_plane().await).await;
        }
    };
    (alone($settings:ident): $story:ident) => {
        #[tokio::test]
        async fn $story() {
            chapter::$story(World::on_control_plane(settings::$settings()).await).await;
        }
    };
    (virtual_time($settings:ident): $story:ident) => {};
}

stories! { play }
