//! What the operator writes to its log.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::Pod;
use kerf_api::NodeClaim;
use kerf_controllers::Settings;
use kerf_scenarios::{World, build};
use serde_json::{Value, json};

/// Lines of JSON.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fields of the lines with this message.
    fn of(&self, message: &str) -> Vec<Value> {
        let text = String::from_utf8(self.bytes().clone()).expect("the log is text");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a line of the log is JSON"));
        lines.map(|line| line["fields"].clone()).filter(|it| it["message"] == message).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A runtime with a paused clock runs everything on this thread, so that one subscriber hears it all.
#[tokio::test(start_paused = true)]
async fn a_launch_is_logged_once_with_what_was_bought() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let world = World::on_testbed(7, Settings::default()).await;
    world.create(build::node_class("default", &json!({}))).await;
    world.create(build::pool("default", &json!({}))).await;
    for name in ["a", "b"] {
        world.create(build::pod(name, &json!({}))).await;
    }
    world
        .until("the pods run", async |world: &World| {
            let running = |pod: &Pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                phase == Some("Running")
            };
            let pods = world.list::<Pod>().await;
            if pods.iter().all(running) { Ok(()) } else { Err(format!("{pods:?}")) }
        })
        .await;
    let claims = world.list::<NodeClaim>().await;
    let launched = log.of("launched nodeclaim");
    assert_eq!((claims.len(), launched.len()), (1, 1), "{launched:?}");
    let [line] = &launched[..] else { panic!("{launched:?}") };
    let label = |key: &str| json!(claims[0].metadata.labels.as_ref().unwrap()[key]);
    assert_eq!(line["claim"], json!(claims[0].metadata.name));
    assert_eq!(line["instance_type"], label("node.kubernetes.io/instance-type"));
    assert_eq!(line["zone"], label("topology.kubernetes.io/zone"));
    assert_eq!(line["capacity_type"], label("karpenter.sh/capacity-type"));
    assert_eq!(line["pods"], 2);
    let price = line["price"].as_str().unwrap_or_default();
    assert!(price.starts_with('$') && price.ends_with("/h"), "{line}");
}
