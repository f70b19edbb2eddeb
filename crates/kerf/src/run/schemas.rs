//! What the installed `CustomResourceDefinitions` lack.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kerf_runtime::crds::missing_fields;
use kube::{Client, ResourceExt};
use tracing::{debug, warn};

/// The API server publishes a schema a moment after it accepted the definition, and so it does with a new version of one.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const LOOKS: u32 = 6;

/// Says once which fields of which definition are missing. The operator runs on: it works, only what users write into these
/// fields never arrives.
pub(super) async fn name_missing_fields(
    client: Client,
    definitions: Vec<CustomResourceDefinition>,
) {
    for definition in definitions {
        let fields = settled(&client, &definition).await;
        if !fields.is_empty() {
            warn!(
                definition = definition.name_any(),
                fields = fields.join(", "),
                "the installed CustomResourceDefinition is of another version and lacks fields: the API server drops them from \
                 objects without a word; upgrade the chart kerf-crds, or run: kerf crds | kubectl apply -f -"
            );
        }
    }
}

/// The fields that are missing in two looks in a row, or none where nothing is known.
async fn settled(client: &Client, definition: &CustomResourceDefinition) -> Vec<String> {
    let mut last = None;
    for _ in 0..LOOKS {
        match missing_fields(client, definition).await {
            Ok(Some(fields)) if fields.is_empty() => return fields,
            Ok(Some(fields)) if last.as_ref() == Some(&fields) => return fields,
            Ok(fields) => last = fields,
            Err(error) => {
                debug!(definition = definition.name_any(), %error, "cannot read the published schema");
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Vec::new()
}
