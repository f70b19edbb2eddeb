//! Reading claims, their templates, and classes.

use std::num::NonZeroU32;
use std::sync::Arc;

use k8s_openapi::api::resource::v1 as api;

use super::{Claim, ClaimId, Constraint, DeviceClass, Mode, Request, Rule, Wanted, Wish};
use crate::amount::{Amount, NotAnAmount};
use crate::capacity::Amounts;
use crate::device::{AttributeName, Effect, Toleration};

/// A claim, or a class, that cannot be read. Most come from a newer Kubernetes, whose fields are not known here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object} cannot be read: {defect}")]
pub struct MalformedClaim {
    pub object: String,
    pub defect: ClaimDefect,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimDefect {
    #[error("request {request} asks for nothing that is known")]
    UnknownRequest { request: String },
    #[error("request {request} has the allocation mode {mode}, which is not known")]
    UnknownMode { request: String, mode: String },
    #[error("request {request} asks for {count} devices")]
    Count { request: String, count: i64 },
    #[error("selector {selector} of {owner} is not a CEL expression")]
    UnknownSelector { owner: String, selector: usize },
    #[error("request {request} asks for {capacity}: {source}")]
    Capacity { request: String, capacity: String, source: NotAnAmount },
    #[error("request {request} has a toleration with the operator {operator}")]
    UnknownOperator { request: String, operator: String },
    #[error("constraint {constraint} is of no known type")]
    UnknownConstraint { constraint: usize },
    #[error("constraint {constraint} names the attribute {attribute} without its domain")]
    NoDomain { constraint: usize, attribute: String },
    #[error("device {device}: {source}")]
    Consumed { device: String, source: NotAnAmount },
    #[error("the node selector of its allocation: {0}")]
    Selector(#[from] crate::reach::MalformedSelector),
}

impl TryFrom<&api::ResourceClaim> for Claim {
    type Error = MalformedClaim;

    fn try_from(claim: &api::ResourceClaim) -> Result<Self, MalformedClaim> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let id = ClaimId { namespace: namespace.into(), name: name.into() };
        Self::read(id, claim.spec.devices.as_ref())
    }
}

impl Claim {
    /// The claim that a template stands for, under a name that the caller chooses.
    pub fn from_template(
        template: &api::ResourceClaimTemplate,
        id: ClaimId,
    ) -> Result<Self, MalformedClaim> {
        Self::read(id, template.spec.spec.devices.as_ref())
    }

    fn read(id: ClaimId, devices: Option<&api::DeviceClaim>) -> Result<Self, MalformedClaim> {
        let malformed = |defect| MalformedClaim { object: format!("the claim {id}"), defect };
        let requests = devices.iter().flat_map(|devices| devices.requests.iter().flatten());
        let requests = requests.map(read_request).collect::<Result<_, _>>().map_err(malformed)?;
        let constraints = devices.iter().flat_map(|devices| devices.constraints.iter().flatten());
        let constraints = constraints.enumerate().map(read_constraint);
        let constraints = constraints.collect::<Result<_, _>>().map_err(malformed)?;
        Ok(Self { id, requests, constraints })
    }
}

impl TryFrom<&api::DeviceClass> for DeviceClass {
    type Error = MalformedClaim;

    fn try_from(class: &api::DeviceClass) -> Result<Self, MalformedClaim> {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let object = format!("the DeviceClass {name}");
        let selectors = read_selectors(class.spec.selectors.as_ref(), &object);
        let selectors =
            selectors.map_err(|defect| MalformedClaim { object: object.clone(), defect })?;
        let extended_resource = class.spec.extended_resource_name.as_deref().map(Arc::from);
        Ok(Self { selectors, extended_resource })
    }
}

/// The fields that a request and its alternatives have in common.
struct Fields<'a> {
    name: String,
    class: &'a str,
    mode: Option<&'a str>,
    count: Option<i64>,
    selectors: Option<&'a Vec<api::DeviceSelector>>,
    tolerations: Option<&'a Vec<api::DeviceToleration>>,
    capacity: Option<&'a api::CapacityRequirements>,
    admin_access: bool,
}

fn read_request(request: &api::DeviceRequest) -> Result<Request, ClaimDefect> {
    let alternatives = request.first_available.as_deref().unwrap_or_default();
    let wish = match (&request.exactly, alternatives) {
        (Some(exactly), _) => Wish::Exactly(read_wanted(&Fields {
            name: request.name.clone(),
            class: &exactly.device_class_name,
            mode: exactly.allocation_mode.as_deref(),
            count: exactly.count,
            selectors: exactly.selectors.as_ref(),
            tolerations: exactly.tolerations.as_ref(),
            capacity: exactly.capacity.as_ref(),
            admin_access: exactly.admin_access == Some(true),
        })?),
        (None, []) => return Err(ClaimDefect::UnknownRequest { request: request.name.clone() }),
        (None, alternatives) => {
            let alternatives = alternatives.iter().map(|one| {
                let wanted = read_wanted(&Fields {
                    name: format!("{}/{}", request.name, one.name),
                    class: &one.device_class_name,
                    mode: one.allocation_mode.as_deref(),
                    count: one.count,
                    selectors: one.selectors.as_ref(),
                    tolerations: one.tolerations.as_ref(),
                    capacity: one.capacity.as_ref(),
                    admin_access: false,
                })?;
                Ok::<_, ClaimDefect>((Arc::from(one.name.as_str()), wanted))
            });
            Wish::FirstAvailable(alternatives.collect::<Result<_, _>>()?)
        }
    };
    Ok(Request { name: request.name.as_str().into(), wish })
}

fn read_wanted(fields: &Fields<'_>) -> Result<Wanted, ClaimDefect> {
    let request = || fields.name.clone();
    if fields.class.is_empty() {
        return Err(ClaimDefect::UnknownRequest { request: request() });
    }
    let mode = match fields.mode.unwrap_or_default() {
        "" | "ExactCount" => {
            let count = fields.count.unwrap_or(1);
            let exact = u32::try_from(count).ok().and_then(NonZeroU32::new);
            Mode::Count(exact.ok_or_else(|| ClaimDefect::Count { request: request(), count })?)
        }
        "All" => Mode::All,
        mode => {
            let mode = mode.to_owned();
            return Err(ClaimDefect::UnknownMode { request: request(), mode });
        }
    };
    let mut capacity = Amounts::new();
    for (name, asked) in fields.capacity.iter().flat_map(|one| one.requests.iter().flatten()) {
        let amount = Amount::parse(&asked.0).map_err(|source| ClaimDefect::Capacity {
            request: request(),
            capacity: name.clone(),
            source,
        })?;
        capacity.insert(name.as_str().into(), amount);
    }
    let tolerations = fields.tolerations.into_iter().flatten();
    let tolerations = tolerations.map(|one| read_toleration(one, &fields.name));
    Ok(Wanted {
        class: fields.class.into(),
        selectors: read_selectors(fields.selectors, &format!("request {}", fields.name))?,
        mode,
        admin_access: fields.admin_access,
        tolerations: tolerations.collect::<Result<_, _>>()?,
        capacity,
    })
}

fn read_selectors(
    selectors: Option<&Vec<api::DeviceSelector>>,
    owner: &str,
) -> Result<Vec<Arc<str>>, ClaimDefect> {
    let selectors = selectors.into_iter().flatten().enumerate();
    let selectors = selectors.map(|(selector, one)| match &one.cel {
        Some(cel) => Ok(cel.expression.as_str().into()),
        None => Err(ClaimDefect::UnknownSelector { owner: owner.to_owned(), selector }),
    });
    selectors.collect()
}

fn read_toleration(
    toleration: &api::DeviceToleration,
    request: &str,
) -> Result<Toleration, ClaimDefect> {
    let value = match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => Some(toleration.value.as_deref().unwrap_or_default().into()),
        "Exists" => None,
        operator => {
            let (request, operator) = (request.to_owned(), operator.to_owned());
            return Err(ClaimDefect::UnknownOperator { request, operator });
        }
    };
    let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    Ok(Toleration {
        key: set(&toleration.key).map(Arc::from),
        value,
        effect: set(&toleration.effect).map(|effect| Effect::named(&effect)),
    })
}

fn read_constraint(
    (constraint, api): (usize, &api::DeviceConstraint),
) -> Result<Constraint, ClaimDefect> {
    let named = |attribute: &String| match attribute.split_once('/') {
        Some((domain, id)) => Ok(AttributeName { domain: domain.into(), id: id.into() }),
        None => Err(ClaimDefect::NoDomain { constraint, attribute: attribute.clone() }),
    };
    let rule = match (&api.match_attribute, &api.distinct_attribute) {
        (Some(attribute), _) => Rule::MatchAttribute(named(attribute)?),
        (None, Some(attribute)) => Rule::DistinctAttribute(named(attribute)?),
        (None, None) => return Err(ClaimDefect::UnknownConstraint { constraint }),
    };
    let requests = api.requests.iter().flatten().map(|name| name.as_str().into()).collect();
    Ok(Constraint { requests, rule })
}
