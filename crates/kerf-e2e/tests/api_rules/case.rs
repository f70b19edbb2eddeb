//! Two objects that differ in one constraint, and how to write such a pair down.

use std::fmt::Write;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kerf_api::crd;
use kerf_provider::Provider;
use kerf_provider_kwok::Kwok;
use serde_json::{Value, json};

use crate::{constraints::Constraint, ec2_node_class};

pub(crate) const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    NodePool,
    NodeClaim,
    NodeOverlay,
    KwokNodeClass,
    Ec2NodeClass,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::NodePool,
        Self::NodeClaim,
        Self::NodeOverlay,
        Self::KwokNodeClass,
        Self::Ec2NodeClass,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NodePool => "NodePool",
            Self::NodeClaim => "NodeClaim",
            Self::NodeOverlay => "NodeOverlay",
            Self::KwokNodeClass => "KWOKNodeClass",
            Self::Ec2NodeClass => "EC2NodeClass",
        }
    }

    pub(crate) fn group_version(self) -> (&'static str, &'static str) {
        match self {
            Self::NodePool | Self::NodeClaim => ("karpenter.sh", "v1"),
            Self::NodeOverlay => ("karpenter.sh", "v1alpha1"),
            Self::KwokNodeClass => ("karpenter.kwok.sh", "v1alpha1"),
            Self::Ec2NodeClass => ("karpenter.k8s.aws", "v1"),
        }
    }

    /// An object of this kind with these parts.
    pub(crate) fn object(self, name: &str, parts: &Value) -> Value {
        let (group, version) = self.group_version();
        let mut object = parts.clone();
        object["apiVersion"] = json!(format!("{group}/{version}"));
        object["kind"] = json!(self.name());
        object["metadata"] = json!({ "name": name });
        object
    }
}

/// The CRDs as they are with all providers.
pub(crate) fn crds() -> Vec<CustomResourceDefinition> {
    crd::crds(&[Kwok.additions(), kerf_aws_api::additions()])
}

/// Objects with every field set, so that a case has to change one only.
pub(crate) fn base(kind: Kind) -> Value {
    let taint = json!([{ "key": "a", "value": "b", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" }]);
    let node = json!({
        "taints": taint,
        "startupTaints": taint,
        "requirements": [{ "key": "team", "operator": "In", "values": ["a", "b"], "minValues": 1 }],
        "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
        "terminationGracePeriod": "5m",
        "expireAfter": "720h",
    });
    let conditions = json!([{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
    }]);
    match kind {
        Kind::NodePool => json!({
            "spec": {
                "template": { "metadata": { "labels": { "team": "a" }, "annotations": { "a": "b" } }, "spec": node },
                "disruption": {
                    "consolidateAfter": "0s",
                    "consolidationPolicy": "Balanced",
                    "consolidationUtilizationThreshold": 0.5,
                    "consolidationPriceImprovementFactor": 0.5,
                    "consolidationSavingsThreshold": 0.5,
                    "consolidationGracePeriod": "1h",
                    "budgets": [{ "nodes": "1", "schedule": "@daily", "duration": "1h", "reasons": ["Empty"] }],
                },
                "limits": { "cpu": "10" },
                "weight": 10,
            },
            "status": { "resources": { "cpu": "1" }, "nodes": 1, "nodeClassObservedGeneration": 1, "conditions": conditions },
        }),
        Kind::NodeClaim => {
            let mut spec = node;
            spec["resources"] = json!({ "requests": { "cpu": "1" } });
            let status = json!({
                "nodeName": "a", "providerID": "b", "imageID": "c",
                "capacity": { "cpu": "1" }, "allocatable": { "cpu": "1" },
                "lastPodEventTime": "2026-01-01T00:00:00Z", "conditions": conditions,
            });
            json!({ "spec": spec, "status": status })
        }
        Kind::NodeOverlay => json!({
            "spec": {
                "requirements": [{ "key": "team", "operator": "In", "values": ["a", "b"] }],
                "priceAdjustment": "-30%",
                "capacity": { "example.com/device": "1" },
                "weight": 10,
            },
            "status": { "conditions": conditions },
        }),
        Kind::KwokNodeClass => {
            json!({ "spec": { "nodeRegistrationDelay": "5s" }, "status": { "conditions": conditions } })
        }
        Kind::Ec2NodeClass => {
            let mut class = ec2_node_class::base();
            class["status"]["conditions"] = conditions;
            class
        }
    }
}

/// Two objects that differ in one constraint.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub kind: Kind,
    pub number: usize,
    /// Where the constraint is, as a JSON pointer.
    pub at: String,
    keyword: String,
    /// Part of the sentence in which the bad one is refused.
    pub message: String,
    /// What is changed into the good or the bad object, for constraints on changes.
    pub old: Option<Value>,
    pub good: Value,
    pub bad: Value,
}

impl Case {
    pub(crate) fn constraint(&self) -> Constraint {
        let inside_map = |path: &str| {
            [
                "/labels",
                "/annotations",
                "/limits",
                "/resources",
                "/requests",
                "/capacity",
                "/allocatable",
                "/tags",
                "/systemReserved",
                "/kubeReserved",
                "/evictionHard",
                "/evictionSoft",
            ]
            .iter()
            .any(|map| path.ends_with(map))
        };
        let mut path = String::new();
        for step in self.at.split('/').skip(1) {
            let step = match step {
                _ if inside_map(&path) && path != "/spec/resources" => "{}",
                step if step.parse::<usize>().is_ok() => "[]",
                step => step,
            };
            path = format!("{path}/{step}");
        }
        (self.kind.name(), path, self.keyword.clone())
    }

    /// The field that the API server names: `spec.taints[0].key`.
    pub(crate) fn field(&self) -> String {
        let mut field = String::new();
        for step in self.at.split('/').skip(1) {
            match step.parse::<usize>() {
                Ok(index) => write!(field, "[{index}]").unwrap(),
                Err(_) if field.is_empty() => field += step,
                Err(_) => write!(field, ".{step}").unwrap(),
            }
        }
        // Of a missing part and of an entry that is listed twice the part itself is named.
        match self.keyword.split_once(' ') {
            Some(("required", name)) if field.is_empty() => name.to_owned(),
            Some(("required", name)) => format!("{field}.{name}"),
            _ if self.keyword == "unique" => format!("{field}[1]"),
            _ => field,
        }
    }
}

#[derive(Default)]
pub(crate) struct Cases(Vec<Case>);

impl Cases {
    pub(crate) fn into_vec(self) -> Vec<Case> {
        self.0
    }

    /// The field has a good or a bad value.
    pub(crate) fn value(
        &mut self,
        kind: Kind,
        at: &str,
        keyword: &str,
        message: &str,
        good: Value,
        bad: Value,
    ) {
        let with = |value: Value| {
            let mut object = kind.object("new", &base(kind));
            let (parent, field) = at.rsplit_once('/').unwrap();
            let parent = object.pointer_mut(parent).unwrap();
            match field.parse::<usize>() {
                Ok(index) => parent[index] = value,
                Err(_) => parent[field] = value,
            }
            object
        };
        self.push(kind, at, keyword, message, None, with(good), with(bad));
    }

    pub(crate) fn pattern(&mut self, kind: Kind, at: &str, pattern: &str, good: &str, bad: &str) {
        let message = format!("should match '{pattern}'");
        self.value(kind, at, &format!("pattern {pattern}"), &message, json!(good), json!(bad));
    }

    pub(crate) fn minimum(&mut self, kind: Kind, at: &str, minimum: i64, bad: Value) {
        let message = format!("should be greater than or equal to {minimum}");
        self.value(kind, at, &format!("minimum {minimum}"), &message, json!(minimum), bad);
    }

    pub(crate) fn maximum(&mut self, kind: Kind, at: &str, maximum: i64, bad: Value) {
        let message = format!("should be less than or equal to {maximum}");
        self.value(kind, at, &format!("maximum {maximum}"), &message, json!(maximum), bad);
    }

    pub(crate) fn one_of(&mut self, kind: Kind, at: &str, good: &[&str], bad: &[&str]) {
        let supported = good.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ");
        for (good, bad) in good.iter().zip(bad.iter().cycle()) {
            let message = format!("Unsupported value: {bad:?}: supported values: {supported}");
            self.value(kind, at, "enum", &message, json!(good), json!(bad));
        }
    }

    pub(crate) fn date_time(&mut self, kind: Kind, at: &str) {
        let message = "must be of type date-time";
        self.value(
            kind,
            at,
            "format date-time",
            message,
            json!("2026-02-03T04:05:06Z"),
            json!("yesterday"),
        );
    }

    pub(crate) fn quantity(&mut self, kind: Kind, at: &str) {
        for (good, bad) in [("1500m", "1500x"), ("1.5Gi", "1.5 Gi"), ("1e3", "e3"), ("+.5", "")] {
            self.pattern(kind, at, QUANTITY, good, bad);
        }
        let message = format!("should match '{QUANTITY}'");
        self.value(kind, at, &format!("pattern {QUANTITY}"), &message, json!(5), json!("five"));
    }

    /// Without a part that must be there.
    pub(crate) fn required(&mut self, kind: Kind, at: &str, name: &str) {
        let good = kind.object("new", &base(kind));
        let mut bad = good.clone();
        bad.pointer_mut(at).unwrap().as_object_mut().unwrap().remove(name);
        self.push(kind, at, &format!("required {name}"), "Required value", None, good, bad);
    }

    /// As `rule`, for any constraint.
    pub(crate) fn changed(
        &mut self,
        kind: Kind,
        at: &str,
        keyword: &str,
        message: &str,
        good: &Value,
        bad: &Value,
    ) {
        let with = |spec| merged(kind.object("new", &base(kind)), &json!({ "spec": spec }));
        self.push(kind, at, keyword, message, None, with(good), with(bad));
    }

    /// The parts are merged into an object.
    pub(crate) fn rule(&mut self, kind: Kind, at: &str, message: &str, good: &Value, bad: &Value) {
        let with = |changes| merged(kind.object("new", &base(kind)), changes);
        self.push(kind, at, &format!("rule {message}"), message, None, with(good), with(bad));
    }

    /// An object is changed in a good or a bad way.
    pub(crate) fn change(
        &mut self,
        kind: Kind,
        at: &str,
        message: &str,
        old: &Value,
        good: &Value,
        bad: &Value,
    ) {
        let old = merged(kind.object("old", &base(kind)), old);
        let with = |changes| merged(old.clone(), changes);
        let (good, bad) = (with(good), with(bad));
        self.push(kind, at, &format!("rule {message}"), message, Some(old), good, bad);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a case, named once, here")]
    pub(crate) fn push(
        &mut self,
        kind: Kind,
        at: &str,
        keyword: &str,
        message: &str,
        old: Option<Value>,
        good: Value,
        bad: Value,
    ) {
        let (at, keyword, message) = (at.to_owned(), keyword.to_owned(), message.to_owned());
        self.0.push(Case { kind, number: self.0.len(), at, keyword, message, old, good, bad });
    }
}

/// A JSON merge patch: null removes.
pub(crate) fn merged(mut into: Value, changes: &Value) -> Value {
    match changes {
        Value::Object(changes) if into.is_object() => {
            for (name, change) in changes {
                if change.is_null() {
                    into.as_object_mut().unwrap().remove(name);
                } else {
                    into[name] = merged(into[name].take(), change);
                }
            }
            into
        }
        other => other.clone(),
    }
}
