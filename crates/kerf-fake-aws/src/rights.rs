//! What a caller may do: an IAM policy, as far as the one of Kerf goes.

use std::any::Any;
use std::collections::BTreeMap;

use kerf_aws_wire::{Operation, ec2, eks, iam, sqs, ssm};
use serde_json::Value;

use crate::cloud::Cloud;
use crate::filters::{Tags, matches, tags_of};
use crate::profiles;
use crate::refused::Refused;
use crate::templates::Named;

/// One thing that a call needs to be allowed. Many calls need several.
#[derive(Clone, Debug)]
struct Need {
    action: String,
    resource: String,
    /// What conditions ask about, such as `aws:RequestTag/team`.
    facts: BTreeMap<String, Vec<String>>,
}

impl Need {
    fn requests(self, tags: &Tags) -> Self {
        let keys: Vec<_> = tags.keys().cloned().collect();
        let mut need = self.with_tags("RequestTag", tags);
        need.facts.insert("aws:TagKeys".to_owned(), keys);
        need
    }

    fn touches(self, tags: &Tags) -> Self {
        self.with_tags("ResourceTag", tags)
    }

    fn with_tags(mut self, side: &str, tags: &Tags) -> Self {
        let facts =
            tags.iter().map(|(key, value)| (format!("aws:{side}/{key}"), vec![value.clone()]));
        self.facts.extend(facts);
        self
    }

    fn with(mut self, key: &str, value: &str) -> Self {
        self.facts.insert(key.to_owned(), vec![value.to_owned()]);
        self
    }
}

impl Cloud {
    /// Whether the policy allows the call. What only one of its statements allowed is written down.
    pub(crate) fn authorize<O: Operation + 'static>(
        &mut self,
        request: &O,
        policy: &Value,
    ) -> Result<(), Refused> {
        for need in self.needs(request) {
            let mut statements = allowing(policy, &need);
            let Some(statement) = statements.next() else {
                let message = format!(
                    "You are not authorized to perform this operation. User is not authorized to perform: {} on resource: {}",
                    need.action, need.resource
                );
                let code =
                    if O::SERVICE.id == "EC2" { "UnauthorizedOperation" } else { "AccessDenied" };
                return Err(Refused::with_status(403, code, message));
            };
            if statements.next().is_none() {
                self.requests.needed(statement, &need.action);
            }
        }
        Ok(())
    }

    fn need<O: Operation>(&self, resource: &str) -> Need {
        let region = vec![self.settings.region.clone()];
        Need {
            action: format!("{}:{}", O::SERVICE.signing_name, O::NAME),
            resource: resource.to_owned(),
            facts: BTreeMap::from([("aws:RequestedRegion".to_owned(), region)]),
        }
    }

    fn ec2(&self, kind: &str, id: &str) -> String {
        let settings = &self.settings;
        format!("arn:aws:ec2:{}:{}:{kind}/{id}", settings.region, settings.account)
    }

    fn needs<O: Operation + 'static>(&self, request: &O) -> Vec<Need> {
        let any: &dyn Any = request;
        let settings = &self.settings;
        let (region, account) = (&settings.region, &settings.account);
        if let Some(fleet) = any.downcast_ref::<ec2::CreateFleetRequest>() {
            let templates = fleet.launch_template_configs.iter().filter_map(|config| {
                let named = config.launch_template_specification.as_ref()?;
                Some((named.launch_template_name.as_deref(), named.launch_template_id.as_deref()))
            });
            return self.launch::<O>(
                templates,
                &fleet.tag_specifications,
                &["fleet", "instance", "volume"],
            );
        }
        if let Some(run) = any.downcast_ref::<ec2::RunInstancesRequest>() {
            let template = run.launch_template.iter().map(|named| {
                (named.launch_template_name.as_deref(), named.launch_template_id.as_deref())
            });
            return self.launch::<O>(template, &run.tag_specifications, &["instance", "volume"]);
        }
        if let Some(create) = any.downcast_ref::<ec2::CreateLaunchTemplateRequest>() {
            return self.made::<O>(
                "launch-template",
                &tagged(&create.tag_specifications, "launch-template"),
            );
        }
        if let Some(delete) = any.downcast_ref::<ec2::DeleteLaunchTemplateRequest>() {
            let named = Named::new(
                delete.launch_template_name.as_deref(),
                delete.launch_template_id.as_deref(),
            );
            let template = named.and_then(|named| self.templates.get(named));
            // What is not there cannot be forbidden.
            let need = |template: &crate::templates::Template| {
                self.need::<O>(&self.ec2("launch-template", &template.id)).touches(&template.tags)
            };
            return template.map(|template| need(template)).into_iter().collect();
        }
        if let Some(terminate) = any.downcast_ref::<ec2::TerminateInstancesRequest>() {
            return self.instances_of::<O>(&terminate.instance_ids).collect();
        }
        if let Some(create) = any.downcast_ref::<ec2::CreateTagsRequest>() {
            let tags = tags_of(&create.tags);
            return self
                .instances_of::<O>(&create.resources)
                .map(|need| need.requests(&tags))
                .collect();
        }
        if let Some(get) = any.downcast_ref::<ssm::GetParameterRequest>() {
            let name = get.name.as_deref().unwrap_or_default();
            return vec![self.need::<O>(&format!("arn:aws:ssm:{region}::parameter{name}"))];
        }
        if let Some(describe) = any.downcast_ref::<eks::DescribeClusterRequest>() {
            let name = describe.name.as_deref().unwrap_or_default();
            return vec![self.need::<O>(&format!("arn:aws:eks:{region}:{account}:cluster/{name}"))];
        }
        let queue =
            any.downcast_ref::<sqs::GetQueueUrlRequest>().map(|one| one.queue_name.as_deref());
        let queue = queue.or_else(|| {
            any.downcast_ref::<sqs::ReceiveMessageRequest>()
                .map(|one| last(one.queue_url.as_deref()))
        });
        let queue = queue.or_else(|| {
            any.downcast_ref::<sqs::DeleteMessageRequest>()
                .map(|one| last(one.queue_url.as_deref()))
        });
        if let Some(queue) = queue {
            let queue = queue.unwrap_or_default();
            return vec![self.need::<O>(&format!("arn:aws:sqs:{region}:{account}:{queue}"))];
        }
        self.profile_needs::<O>(any).unwrap_or_else(|| vec![self.need::<O>("*")])
    }

    fn profile_needs<O: Operation>(&self, any: &dyn Any) -> Option<Vec<Need>> {
        let account = &self.settings.account;
        let of_profile = |name: &Option<String>| {
            let name = name.as_deref().unwrap_or_default();
            let known = self.profiles.by_name.get(name);
            let path = known.map_or("/", |profile| profile.path.as_str());
            let need =
                self.need::<O>(&format!("arn:aws:iam::{account}:instance-profile{path}{name}"));
            known.map_or(need.clone(), |profile| need.touches(&profile.tags))
        };
        Some(if let Some(create) = any.downcast_ref::<iam::CreateInstanceProfileRequest>() {
            // IAM asks for the right to tag as well. Karpenter's policy, by which profiles can be made, grants it for what has the
            // tags of the cluster already: those of the request count as the profile's.
            let tags = profiles::tags(&create.tags);
            let make = of_profile(&create.instance_profile_name).requests(&tags);
            let tag = Need { action: "iam:TagInstanceProfile".to_owned(), ..make.clone() };
            vec![make, tag.touches(&tags)]
        } else if let Some(tag) = any.downcast_ref::<iam::TagInstanceProfileRequest>() {
            vec![of_profile(&tag.instance_profile_name).requests(&profiles::tags(&tag.tags))]
        } else if let Some(add) = any.downcast_ref::<iam::AddRoleToInstanceProfileRequest>() {
            let role = add.role_name.as_deref().unwrap_or_default();
            let pass = Need {
                action: "iam:PassRole".to_owned(),
                ..self.need::<O>(&format!("arn:aws:iam::{account}:role/{role}"))
            };
            let pass = pass.with("iam:PassedToService", "ec2.amazonaws.com");
            vec![of_profile(&add.instance_profile_name), pass]
        } else if let Some(remove) = any.downcast_ref::<iam::RemoveRoleFromInstanceProfileRequest>()
        {
            vec![of_profile(&remove.instance_profile_name)]
        } else if let Some(delete) = any.downcast_ref::<iam::DeleteInstanceProfileRequest>() {
            vec![of_profile(&delete.instance_profile_name)]
        } else if let Some(get) = any.downcast_ref::<iam::GetInstanceProfileRequest>() {
            vec![of_profile(&get.instance_profile_name)]
        } else if any.is::<iam::ListInstanceProfilesRequest>() {
            vec![self.need::<O>(&format!("arn:aws:iam::{account}:instance-profile/"))]
        } else {
            return None;
        })
    }

    fn instances_of<O: Operation>(&self, ids: &[String]) -> impl Iterator<Item = Need> {
        ids.iter().filter_map(|id| self.instances.get(id)).map(|instance| {
            self.need::<O>(&self.ec2("instance", &instance.id)).touches(&instance.tags)
        })
    }

    /// What a launch uses, what it makes, and the tags it gives to that. Some of the tags stand in the template.
    fn launch<'a, O: Operation>(
        &self,
        templates: impl Iterator<Item = (Option<&'a str>, Option<&'a str>)>,
        tags: &[ec2::TagSpecification],
        made: &[&str],
    ) -> Vec<Need> {
        let used = ["image", "security-group", "subnet"];
        let mut needs: Vec<_> = used.map(|kind| self.need::<O>(&self.ec2(kind, "x"))).into();
        for (name, id) in templates {
            let Ok(template) = Named::new(name, id).and_then(|named| self.templates.get(named))
            else {
                continue;
            };
            let resource = self.ec2("launch-template", &template.id);
            needs.push(self.need::<O>(&resource).touches(&template.tags));
            let of_template: Vec<_> = template
                .data
                .tag_specifications
                .iter()
                .map(|one| (one.resource_type.clone().unwrap_or_default(), tags_of(&one.tags)))
                .collect();
            // An interface is always made.
            if !of_template.iter().any(|(kind, _)| kind == "network-interface") {
                needs.extend(self.made::<O>("network-interface", &Tags::new()));
            }
            for (kind, tags) in of_template {
                needs.extend(self.made::<O>(&kind, &tags));
            }
        }
        needs.extend(made.iter().flat_map(|kind| self.made::<O>(kind, &tagged(tags, kind))));
        needs
    }

    /// To make a thing with these tags is to make it and to tag it.
    fn made<O: Operation>(&self, kind: &str, tags: &Tags) -> Vec<Need> {
        let make = self.need::<O>(&self.ec2(kind, "x")).requests(tags);
        let tag = Need { action: "ec2:CreateTags".to_owned(), ..make.clone() };
        let tag = (!tags.is_empty()).then(|| tag.with("ec2:CreateAction", O::NAME));
        std::iter::once(make).chain(tag).collect()
    }
}

fn tagged(specifications: &[ec2::TagSpecification], kind: &str) -> Tags {
    let of_kind = specifications.iter().filter(|one| one.resource_type.as_deref() == Some(kind));
    of_kind.flat_map(|one| tags_of(&one.tags)).collect()
}

/// The name of the queue is the end of its URL.
fn last(url: Option<&str>) -> Option<&str> {
    url.and_then(|url| url.rsplit('/').next())
}

/// The names of the statements that allow it.
fn allowing<'a>(policy: &'a Value, need: &'a Need) -> impl Iterator<Item = &'a str> {
    let statements = policy["Statement"].as_array().into_iter().flatten();
    let allowing = statements.filter(|statement| {
        statement["Effect"] == "Allow"
            && texts(&statement["Action"]).any(|action| action == need.action)
            && texts(&statement["Resource"]).any(|pattern| matches(pattern, &need.resource))
            && statement["Condition"].as_object().into_iter().flatten().all(|(operator, keys)| {
                keys.as_object()
                    .into_iter()
                    .flatten()
                    .all(|(key, wanted)| holds(operator, key, wanted, need))
            })
    });
    allowing.filter_map(|statement| statement["Sid"].as_str())
}

/// Operators that are not known here do not hold: a policy is not to be wider here than at AWS.
fn holds(operator: &str, key: &str, wanted: &Value, need: &Need) -> bool {
    let fact = need.facts.get(key);
    let is = |value: &String| texts(wanted).any(|wanted| wanted == value);
    match operator {
        "StringEquals" => fact.is_some_and(|values| values.iter().any(is)),
        "StringEqualsIfExists" => fact.is_none_or(|values| values.iter().any(is)),
        "StringLike" => fact.is_some_and(|values| {
            values.iter().any(|value| texts(wanted).any(|pattern| matches(pattern, value)))
        }),
        "ForAllValues:StringEquals" => fact.is_none_or(|values| values.iter().all(is)),
        _ => false,
    }
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.as_array().into_iter().flatten();
    std::iter::once(value).chain(list).filter_map(Value::as_str)
}
