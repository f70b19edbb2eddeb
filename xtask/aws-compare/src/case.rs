//! The objects that both sides get.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

/// An EC2NodeClass, and NodeClaims or pods that need nodes of it. All have the name of the case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    objects: Vec<Value>,
}

pub(crate) const CLUSTER: &str = "test";
pub(crate) const ROLE: &str = "KarpenterNodeRole-test";

impl Case {
    /// Those of `cases/*.yaml` with this in their name. A file holds documents with a class (`class`, the spec of an EC2NodeClass),
    /// perhaps a claim (`claim`, the spec of a NodeClaim) and perhaps a pool with a pod (`pool` and `pod`, their specs).
    pub(crate) fn all(part: Option<&str>) -> Result<Vec<Self>> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
        let mut cases = Vec::new();
        for entry in fs::read_dir(&directory).context("the cases cannot be listed")? {
            let path = entry?.path();
            let text = fs::read_to_string(&path)?;
            let read: Map<String, Value> =
                serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
            for (name, parts) in read {
                let case = Self::new(&name, &parts);
                cases.push(case.with_context(|| format!("{name} in {}", path.display()))?);
            }
        }
        cases.retain(|case| part.is_none_or(|part| case.name.contains(part)));
        ensure!(!cases.is_empty(), "no case has {:?} in its name", part.unwrap_or_default());
        cases.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(cases)
    }

    fn new(name: &str, parts: &Value) -> Result<Self> {
        let parts = parts.as_object().context("a case is a map")?;
        let known = ["class", "claim", "labels", "pool", "pod"];
        let unknown = parts.keys().find(|key| !known.contains(&key.as_str()));
        ensure!(unknown.is_none(), "{unknown:?} is no part of a case");
        let part = |key: &str| parts.get(key).cloned();
        let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name});
        let mut class = default_class();
        merge(&mut class, part("class").unwrap_or_default());
        let mut pool = json!({
            // What is launched is looked at and not used; nothing may take it away meanwhile.
            "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]},
            "template": {"spec": {"nodeClassRef": reference, "requirements": [], "expireAfter": "Never"}},
        });
        merge(&mut pool["template"], part("pool").unwrap_or_default());
        let mut objects = vec![
            object("karpenter.k8s.aws/v1", "EC2NodeClass", name, &class),
            object("karpenter.sh/v1", "NodePool", name, &pool),
        ];
        if let Some(mut claim) = part("claim") {
            claim["nodeClassRef"] = reference;
            let mut claim = object("karpenter.sh/v1", "NodeClaim", name, &claim);
            let mut labels = part("labels").unwrap_or_else(|| json!({}));
            // As the core writes them on its own claims.
            labels["karpenter.sh/nodepool"] = name.into();
            labels["karpenter.k8s.aws/ec2nodeclass"] = name.into();
            claim["metadata"]["labels"] = labels;
            objects.push(claim);
        }
        if let Some(mut pod) = part("pod") {
            pod["nodeSelector"]["karpenter.sh/nodepool"] = name.into();
            pod["terminationGracePeriodSeconds"] = 0.into();
            pod["containers"][0]["name"] = "main".into();
            pod["containers"][0]["image"] = "example.com/main".into();
            let mut pod = object("v1", "Pod", name, &pod);
            pod["metadata"]["namespace"] = "default".into();
            objects.push(pod);
        }
        Ok(Self { name: name.to_owned(), objects })
    }

    /// A class and its pool, and so many claims for them, which differ by their names alone.
    pub(crate) fn burst(count: usize) -> Result<(Self, Self)> {
        let stage = Self::new("burst", &json!({}))?;
        let family = json!({"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["c5", "m5", "r5"]});
        let market =
            json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]});
        let claim = json!({"claim": {"requirements": [family, market], "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}});
        let model = Self::new("burst", &claim)?.objects.pop().context("a claim")?;
        let numbered = |number: usize| {
            let mut claim = model.clone();
            claim["metadata"]["name"] = format!("burst-{number}").into();
            claim
        };
        let claims = Self { name: "burst".to_owned(), objects: (0..count).map(numbered).collect() };
        Ok((stage, claims))
    }

    /// A List, as `kubectl apply` takes it.
    pub(crate) fn manifest(cases: &[Self]) -> String {
        let items: Vec<_> = cases.iter().flat_map(|case| &case.objects).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
    }

    /// Whether a NodeClaim is to come of it.
    pub(crate) fn launches(&self) -> bool {
        self.objects.iter().any(|object| object["kind"] == "NodeClaim" || object["kind"] == "Pod")
    }
}

/// What most classes have. A case says what is different; a part that is `null` there is left out.
fn default_class() -> Value {
    let discovery = json!([{"tags": {"karpenter.sh/discovery": CLUSTER}}]);
    json!({
        "role": ROLE,
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": discovery,
        "securityGroupSelectorTerms": discovery,
    })
}

fn object(api_version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Lays `changes` over `value`: maps are merged, all else is replaced, and `null` takes away.
fn merge(value: &mut Value, changes: Value) {
    match changes {
        Value::Object(changes) if value.is_object() => {
            for (key, change) in changes {
                if change.is_null() {
                    value.as_object_mut().map(|map| map.remove(&key));
                } else {
                    merge(&mut value[key.as_str()], change);
                }
            }
        }
        Value::Null => {}
        other => *value = other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_can_be_read() {
        let cases = Case::all(None).unwrap();
        assert!(cases.len() >= 12, "{}", cases.len());
        assert!(cases.iter().any(Case::launches));
    }

    #[test]
    fn a_case_says_what_is_different() {
        let case = Case::new(
            "windows",
            &json!({"class": {"role": null, "instanceProfile": "own"}, "claim": {"requirements": []}}),
        );
        let objects = case.unwrap().objects;
        assert_eq!(objects[0]["spec"]["role"], Value::Null);
        assert_eq!(objects[0]["spec"]["instanceProfile"], "own");
        assert_eq!(objects[2]["spec"]["nodeClassRef"]["name"], "windows");
        assert!(Case::new("typo", &json!({"clam": {}})).is_err());
    }
}
