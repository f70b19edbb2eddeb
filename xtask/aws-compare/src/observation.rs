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
        let fleets = requests.fleets(case);
        let mut seen = json!({
            "class": class.map(of_class),
            "claims": claims.iter().map(|claim| of_claim(claim, case, &fleets)).collect::<Value>(),
            "fleets": fleets,
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
    // They stand in the order of their free addresses, which launches change.
    status["subnets"] = keyed(&status["subnets"], "id");
    if let Some(images) = status["amis"].as_array_mut() {
        // One image can stand there for several kinds of instances; upstream leaves their order to chance.
        for same in images.chunk_by_mut(|one, other| one["id"] == other["id"]) {
            same.sort_by_key(|image| image["requirements"].to_string());
        }
    }
    json!({
        "annotations": class["metadata"]["annotations"],
        "finalizers": class["metadata"]["finalizers"],
        "status": status,
    })
}

fn of_claim(claim: &Value, case: &Case, fleets: &Value) -> Value {
    let (metadata, spec, status) = (&claim["metadata"], &claim["spec"], &claim["status"]);
    let provider_id = text(claim, "/status/providerID").rsplit_once('/').map(|(zone, _)| zone);
    let mut provider_id = provider_id.map(str::to_owned);
    let (mut labels, mut annotations) =
        (metadata["labels"].clone(), metadata["annotations"].clone());
    if is_any_zone_as_good(&labels, fleets) {
        provider_id = provider_id.map(|_| "<any zone>".to_owned());
        for label in ["topology.kubernetes.io/zone", "topology.k8s.aws/zone-id"] {
            labels[label] = "<any zone>".into();
        }
    }
    // One that the core did not make gets them only if it was there before its pool had them.
    if text(claim, "/metadata/name") == case.name {
        let hash = ["karpenter.sh/nodepool-hash", "karpenter.sh/nodepool-hash-version"];
        annotations = without(&annotations, &hash);
    }
    json!({
        "labels": labels,
        "annotations": annotations,
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

/// On demand a type costs the same in all zones, and which one EC2 takes follows from an order that upstream leaves to chance.
fn is_any_zone_as_good(labels: &Value, fleets: &Value) -> bool {
    let prefix = format!("{} ", text(labels, "/node.kubernetes.io~1instance-type"));
    let templates =
        fleets.as_array().into_iter().flatten().filter_map(|one| one["templates"].as_object());
    let overrides =
        templates.flat_map(|all| all.values()).filter_map(|one| one["overrides"].as_object());
    let places = overrides.flat_map(|all| all.keys()).filter(|place| place.starts_with(&prefix));
    labels["karpenter.sh/capacity-type"] == "on-demand" && places.count() > 1
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
        // A set: what one side has more does not move the others.
        if let Some(Value::Array(values)) = item.get("values") {
            let values = values.iter().filter_map(Value::as_str);
            item["values"] =
                values.map(|value| (value.to_owned(), true.into())).collect::<Map<_, _>>().into();
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
        // Each side has a token of its own for each request.
        if seen.get("ClientToken").is_some() {
            seen["ClientToken"] = "<token>".into();
        }
        // Types with the same settings may stand in one configuration or in several that name the same template.
        let mut by_name: BTreeMap<&str, (Value, BTreeMap<String, Value>)> = BTreeMap::new();
        for config in fleet["LaunchTemplateConfigs"].as_array().into_iter().flatten() {
            let place = |one: &Value| {
                let (kind, zone) = (text(one, "/InstanceType"), text(one, "/AvailabilityZone"));
                (format!("{kind} {zone}"), without(one, &["InstanceType", "AvailabilityZone"]))
            };
            let name = text(config, "/LaunchTemplateSpecification/LaunchTemplateName");
            let specification =
                without(&config["LaunchTemplateSpecification"], &["LaunchTemplateName"]);
            let overrides = config["Overrides"].as_array().into_iter().flatten().map(place);
            by_name
                .entry(name)
                .or_insert_with(|| (specification, BTreeMap::new()))
                .1
                .extend(overrides);
        }
        let mut templates = Map::new();
        for (name, (specification, overrides)) in by_name {
            let mut template = self.templates.get(name).map(of_template).unwrap_or_default();
            template["specification"] = specification;
            // By what is launched with it; the name is a hash on both sides, and not the same one.
            let first = overrides.keys().next().and_then(|place| place.split(' ').next());
            let reservation = "/data/CapacityReservationSpecification/CapacityReservationTarget/CapacityReservationId";
            let key = [first.unwrap_or("nothing"), text(&template, reservation)].join(" ");
            template["overrides"] = json!(overrides);
            templates.insert(key.trim().to_owned(), template);
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
