//! What a side made of a case, without what differs from run to run: ids, times, random names.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::case::Case;
use crate::journal::Journal;
use crate::user_data;

/// As the API server has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Objects {
    pub(crate) classes: Vec<Value>,
    pub(crate) claims: Vec<Value>,
}

impl Objects {
    fn class(&self, case: &Case) -> Option<&Value> {
        self.classes.iter().find(|class| text(class, "/metadata/name") == case.name)
    }

    fn claims<'a>(&'a self, case: &'a Case) -> impl Iterator<Item = &'a Value> {
        let of_case =
            |claim: &&Value| claim["metadata"]["labels"]["karpenter.sh/nodepool"] == *case.name;
        self.claims.iter().filter(of_case)
    }

    /// Whether the class is refused, or ready and all is launched.
    pub(crate) fn is_done(&self, case: &Case) -> bool {
        let ready = self.class(case).map(|class| condition(class, "Ready"));
        let mut launched =
            self.claims(case).map(|claim| condition(claim, "Launched") == "True").peekable();
        match ready.as_deref() {
            Some("True") if case.launches() => {
                launched.peek().is_some() && launched.all(|launched| launched)
            }
            Some("True" | "False") => true,
            _ => false,
        }
    }
}

pub(crate) fn observe(
    cases: &[Case],
    objects: &Objects,
    journal: &Journal,
) -> BTreeMap<String, Value> {
    let requests = Requests::read(journal);
    let of_case = |case: &Case| {
        let class = objects.class(case);
        let claims: Vec<_> = objects.claims(case).collect();
        let mut seen = json!({
            "class": class.map(of_class),
            "claims": claims.iter().map(|claim| of_claim(claim)).collect::<Value>(),
            "fleets": requests.fleets(case),
            "profile": requests.profile(case),
        });
        let names = requests.names(case, class, &claims);
        rename(&mut seen, &names);
        (case.name.clone(), seen)
    };
    cases.iter().map(of_case).collect()
}

fn of_class(class: &Value) -> Value {
    let mut status = class["status"].clone();
    status["conditions"] = conditions(class);
    // For each set of requirements the first image counts, and nothing says in which order images of one age stand.
    json!({
        "annotations": class["metadata"]["annotations"],
        "finalizers": class["metadata"]["finalizers"],
        "status": status,
    })
}

fn of_claim(claim: &Value) -> Value {
    let (metadata, spec, status) = (&claim["metadata"], &claim["spec"], &claim["status"]);
    let provider_id = text(claim, "/status/providerID").rsplit_once('/').map(|(zone, _)| zone);
    json!({
        "labels": metadata["labels"],
        "annotations": metadata["annotations"],
        "finalizers": metadata["finalizers"],
        "requirements": keyed(&spec["requirements"], "key"),
        "resources": spec["resources"],
        "taints": spec["taints"],
        "startupTaints": spec["startupTaints"],
        "expireAfter": spec["expireAfter"],
        "capacity": status["capacity"],
        "allocatable": status["allocatable"],
        "image": status["imageID"],
        "providerID": provider_id,
        "conditions": conditions(claim),
    })
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn condition(object: &Value, kind: &str) -> String {
    let all = object["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|one| one["type"] == kind);
    found.map(|one| text(one, "/status").to_owned()).unwrap_or_default()
}

/// Status and reason by type; messages and times are each side's own.
fn conditions(object: &Value) -> Value {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let short = |one: &Value| {
        let (status, reason) = (text(one, "/status"), text(one, "/reason"));
        (text(one, "/type").to_owned(), format!("{status} {reason}").into())
    };
    Value::Object(all.map(short).collect())
}

/// A list of maps as a map by one of their members.
fn keyed(list: &Value, key: &str) -> Value {
    let items = list.as_array().into_iter().flatten();
    let entry = |item: &Value| {
        let mut item = item.clone();
        let name = item.as_object_mut().and_then(|item| item.remove(key));
        let name = name.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(Value::Array(values)) = item.get_mut("values") {
            values.sort_by_key(ToString::to_string);
        }
        (name, item)
    };
    Value::Object(items.map(entry).collect())
}

/// What was asked of AWS, as far as it belongs to a case.
struct Requests {
    fleets: Vec<Value>,
    templates: BTreeMap<String, Value>,
    profiles: Vec<Value>,
    roles: Vec<Value>,
}

impl Requests {
    fn read(journal: &Journal) -> Self {
        let templates = journal.done("CreateLaunchTemplate").into_iter();
        Self {
            fleets: journal.done("CreateFleet"),
            templates: templates
                .map(|request| (text(&request, "/LaunchTemplateName").to_owned(), request))
                .collect(),
            profiles: journal.done("CreateInstanceProfile"),
            roles: journal.done("AddRoleToInstanceProfile"),
        }
    }

    fn fleets(&self, case: &Case) -> Value {
        let of_case = self.fleets.iter().filter(|fleet| pool_of(fleet) == case.name);
        of_case.map(|fleet| self.fleet(fleet)).collect()
    }

    fn fleet(&self, fleet: &Value) -> Value {
        let mut seen = without(fleet, &["Action", "Version", "LaunchTemplateConfigs"]);
        seen["TagSpecification"] = keyed_tags(&fleet["TagSpecification"]);
        let mut templates = Map::new();
        for config in fleet["LaunchTemplateConfigs"].as_array().into_iter().flatten() {
            let overrides = config["Overrides"].as_array();
            let place = |one: &Value| {
                let (kind, zone) = (text(one, "/InstanceType"), text(one, "/AvailabilityZone"));
                (format!("{kind} {zone}"), without(one, &["InstanceType", "AvailabilityZone"]))
            };
            let overrides: BTreeMap<_, _> = overrides.into_iter().flatten().map(place).collect();
            let name = text(config, "/LaunchTemplateSpecification/LaunchTemplateName");
            let mut template = self.templates.get(name).map(of_template).unwrap_or_default();
            template["specification"] =
                without(&config["LaunchTemplateSpecification"], &["LaunchTemplateName"]);
            template["overrides"] = json!(overrides);
            // By what is launched with it; the name is a hash on both sides, and not the same one.
            let first = overrides.keys().next().and_then(|place| place.split(' ').next());
            let mut key = first.unwrap_or("nothing").to_owned();
            while templates.contains_key(&key) {
                key.push_str(" again");
            }
            templates.insert(key, template);
        }
        seen["templates"] = Value::Object(templates);
        seen
    }

    fn profile(&self, case: &Case) -> Value {
        let of_case = |request: &&Value| {
            text(request, "/Tags/member/karpenter.k8s.aws~1ec2nodeclass") == case.name
        };
        let created: Vec<_> = self.profiles.iter().filter(of_case).collect();
        let added = |role: &&Value| {
            let named =
                |profile: &&Value| profile["InstanceProfileName"] == role["InstanceProfileName"];
            created.iter().any(named)
        };
        let short = |request: &Value| without(request, &["Action", "Version"]);
        json!({
            "created": created.iter().map(|request| short(request)).collect::<Value>(),
            "roles": self.roles.iter().filter(added).map(short).collect::<Value>(),
        })
    }

    /// Names of this run, and what stands for them.
    fn names(
        &self,
        case: &Case,
        class: Option<&Value>,
        claims: &[&Value],
    ) -> Vec<(String, String)> {
        let mut names = Vec::new();
        let mut add = |name: &str, stands: &str| {
            if !name.is_empty() {
                names.push((name.to_owned(), stands.to_owned()));
            }
        };
        for profile in self.profile(case)["created"].as_array().into_iter().flatten() {
            add(text(profile, "/InstanceProfileName"), "<profile>");
        }
        if let Some(class) = class {
            add(text(class, "/metadata/uid"), "<class uid>");
        }
        for claim in claims {
            add(text(claim, "/metadata/uid"), "<claim uid>");
            let name = text(claim, "/metadata/name");
            if name != case.name {
                add(name, "<claim>");
            }
        }
        names
    }
}

/// The pool that a fleet is for, by the tags of its instances.
fn pool_of(fleet: &Value) -> &str {
    let tags = fleet["TagSpecification"].as_array().into_iter().flatten();
    let mut pools = tags.map(|one| text(one, "/Tag/karpenter.sh~1nodepool"));
    pools.find(|pool| !pool.is_empty()).unwrap_or_default()
}

fn of_template(request: &Value) -> Value {
    let mut data = without(&request["LaunchTemplateData"], &["UserData", "TagSpecification"]);
    data["TagSpecification"] = keyed_tags(&request["LaunchTemplateData"]["TagSpecification"]);
    json!({
        "data": data,
        "userData": user_data::read(text(request, "/LaunchTemplateData/UserData")),
        "tags": keyed_tags(&request["TagSpecification"]),
    })
}

/// Tags by the kind of what has them.
fn keyed_tags(specifications: &Value) -> Value {
    let all = specifications.as_array().into_iter().flatten();
    Value::Object(
        all.map(|one| (text(one, "/ResourceType").to_owned(), one["Tag"].clone())).collect(),
    )
}

fn without(value: &Value, keys: &[&str]) -> Value {
    let mut map = value.as_object().cloned().unwrap_or_default();
    map.retain(|key, _| !keys.contains(&key.as_str()));
    Value::Object(map)
}

/// Puts what stands for them in the place of names, wherever they are.
fn rename(value: &mut Value, names: &[(String, String)]) {
    match value {
        Value::String(text) => {
            for (name, stands) in names {
                if text.contains(name) {
                    *text = text.replace(name, stands);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        Value::Object(map) => {
            let entries = std::mem::take(map);
            for (mut key, mut value) in entries {
                rename(&mut value, names);
                for (name, stands) in names {
                    key = key.replace(name, stands);
                }
                map.insert(key, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
