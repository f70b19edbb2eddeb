//! What a story says in KWOK's words, in those of AWS, and back.

use kerf_fake_aws::BOOT;
use kerf_provider_kwok as kwok;
use serde_json::{Value, json};

/// KWOK's words and AWS's; the first that fits counts.
const WORDS: [(&str, &str); 6] = [
    ("karpenter.kwok.sh/v1alpha1", "karpenter.k8s.aws/v1"),
    ("karpenter.kwok.sh", "karpenter.k8s.aws"),
    ("KWOKNodeClass", "EC2NodeClass"),
    ("kwoknodeclass", "ec2nodeclass"),
    ("kwok://stray", "aws:///us-west-2a/i-00000000000057a4e"),
    ("test-zone-", "us-west-2"),
];

pub(crate) fn translate(object: &mut Value) {
    if object["kind"] == kwok::KIND {
        object["spec"] = class(&object["spec"]);
    }
    each_text(object, &|text| {
        WORDS.iter().fold(text, |text, (kwok, aws)| replace(text, kwok, aws))
    });
}

pub(crate) fn translate_back(object: &mut Value) {
    each_text(object, &|mut text| {
        // An id is handed back to the cloud as it is.
        if text.starts_with("aws:///") {
            return text;
        }
        // The names of zones, and not that of the region.
        for letter in 'a'..='z' {
            text = replace(text, &format!("us-west-2{letter}"), &format!("test-zone-{letter}"));
        }
        let others = WORDS.iter().filter(|(kwok, _)| *kwok != "test-zone-");
        others.fold(text, |text, (kwok, aws)| replace(text, aws, kwok))
    });
}

/// A class that finds what the account has. How long its nodes take to come its instances say by a tag.
fn class(of_kwok: &Value) -> Value {
    let of_cluster = json!([{"tags": {"karpenter.sh/discovery": "test"}}]);
    let mut spec = json!({
        "role": "KarpenterNodeRole-test",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": of_cluster,
        "securityGroupSelectorTerms": of_cluster,
    });
    if let Some(delay) = of_kwok["nodeRegistrationDelay"].as_str() {
        spec["tags"] = json!({BOOT: delay});
    }
    spec
}

fn replace(text: String, from: &str, to: &str) -> String {
    if text.contains(from) { text.replace(from, to) } else { text }
}

/// Changes all texts, the names of fields included.
fn each_text(value: &mut Value, change: &impl Fn(String) -> String) {
    match value {
        Value::String(text) => *text = change(std::mem::take(text)),
        Value::Array(list) => list.iter_mut().for_each(|one| each_text(one, change)),
        Value::Object(map) => {
            for (name, mut one) in std::mem::take(map) {
                each_text(&mut one, change);
                map.insert(change(name), one);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_translated_comes_back() {
        let mut pool = json!({
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass"},
            "zone": "test-zone-c", "karpenter.kwok.sh/kwoknodeclass": ["default", 1],
        });
        let told = pool.clone();
        translate(&mut pool);
        assert_eq!(
            pool,
            json!({
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"},
                "zone": "us-west-2c", "karpenter.k8s.aws/ec2nodeclass": ["default", 1],
            })
        );
        translate_back(&mut pool);
        assert_eq!(pool, told);
    }

    #[test]
    fn a_region_is_no_zone() {
        let mut node = json!("ip-10-0-0-4.us-west-2.compute.internal");
        translate_back(&mut node);
        assert_eq!(node, json!("ip-10-0-0-4.us-west-2.compute.internal"));
    }
}
