//! Images: how those of a class are looked for, which of them are taken, and which one an instance type gets.

mod aliases;
mod queries;

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use kerf_aws_api::Ami;
use kerf_aws_wire::ec2::Image;
use kerf_model::{InstanceType, KnownLabels, Requirement, Requirements, Undefined, labels::ARCH};

use crate::catalogue::Architecture;

pub use aliases::UnsupportedAlias;
pub use queries::{ImagePlan, ImageQuery, Origin, Parameter, Resolved, Skipped};

/// An image for machines that meet the requirements.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    id: String,
    name: String,
    created: Option<Timestamp>,
    deprecated: bool,
}

impl Candidate {
    fn new(image: &Image, now: Timestamp) -> Self {
        let time = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
        let deprecation: Option<Timestamp> = time(&image.deprecation_time);
        Self {
            id: image.image_id.clone().unwrap_or_default(),
            name: image.name.clone().unwrap_or_default(),
            created: time(&image.creation_date),
            deprecated: deprecation.is_some_and(|deprecation| deprecation <= now),
        }
    }

    /// The greater one is taken: what is not deprecated, then the newer, then the higher name.
    fn rank(&self) -> (bool, Option<i64>, &str) {
        (!self.deprecated, self.created.map(Timestamp::as_second), &self.name)
    }
}

/// The images of a class for its status: of those for the same machines the best, newest first.
pub fn choose<'a>(
    found: impl IntoIterator<Item = (&'a ImageQuery, &'a Image)>,
    now: Timestamp,
) -> Vec<Ami> {
    let mut chosen: BTreeMap<Requirements, Candidate> = BTreeMap::new();
    for (query, image) in found {
        let name = image.architecture.as_deref().unwrap_or_default();
        let Some(architecture) = Architecture::from_ec2(name) else { continue };
        let candidate = Candidate::new(image, now);
        for mut requirements in query.requirements(&candidate.id) {
            requirements.add(Requirement::is_in(ARCH, [architecture.label()]));
            match chosen.get(&requirements) {
                Some(best) if best.rank() >= candidate.rank() => {}
                _ => {
                    chosen.insert(requirements, candidate.clone());
                }
            }
        }
    }
    let mut chosen: Vec<_> = chosen.into_iter().collect();
    // The sort is stable, so that the sets of one image stay in order.
    chosen.sort_by(|(_, one), (_, other)| {
        let newest_first =
            |candidate: &Candidate| Reverse(candidate.created.map(Timestamp::as_second));
        newest_first(one).cmp(&newest_first(other)).then_with(|| one.id.cmp(&other.id))
    });
    chosen.into_iter().map(|(requirements, candidate)| ami(&requirements, candidate)).collect()
}

/// When each image was published, as far as EC2 says.
pub fn published<'a>(found: impl IntoIterator<Item = &'a Image>) -> BTreeMap<String, Timestamp> {
    let read = |image: &Image| {
        let created = image.creation_date.as_ref()?.parse().ok()?;
        Some((image.image_id.clone()?, created))
    };
    found.into_iter().filter_map(read).collect()
}

fn ami(requirements: &Requirements, candidate: Candidate) -> Ami {
    let mut requirements: Vec<_> = requirements
        .iter()
        .flat_map(Requirement::expressions)
        .map(|expression| NodeSelectorRequirement {
            operator: expression.operator.as_str().to_owned(),
            values: Some(expression.values).filter(|values| !values.is_empty()),
            key: expression.key,
        })
        .collect();
    requirements.sort_by(|one, other| {
        one.key.len().cmp(&other.key.len()).then_with(|| one.key.cmp(&other.key))
    });
    Ami {
        id: candidate.id,
        deprecated: candidate.deprecated,
        name: Some(candidate.name).filter(|name| !name.is_empty()),
        requirements,
    }
}

/// The images in the status of a class, read once for all types.
#[derive(Clone, Debug, PartialEq)]
pub struct Images(Vec<(String, Requirements)>);

impl Images {
    /// What has an operator that is not known suits no machine.
    pub fn new(amis: &[Ami], labels: &KnownLabels) -> Self {
        let read = |ami: &Ami| {
            let requirements =
                ami.requirements.iter().map(|one| labels.read(one)).collect::<Result<Vec<_>, _>>();
            Some((ami.id.clone(), Requirements::new(requirements.ok()?)))
        };
        Self(amis.iter().filter_map(read).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The image that the type is launched with: the first that suits it.
    pub fn of(&self, instance_type: &InstanceType) -> Option<&str> {
        let suits = |requirements: &Requirements| {
            instance_type.requirements().compatible(requirements, Undefined::Refused).is_ok()
        };
        self.0.iter().find(|(_, requirements)| suits(requirements)).map(|(id, _)| id.as_str())
    }
}

#[cfg(test)]
mod tests;
