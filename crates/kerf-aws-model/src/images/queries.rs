//! What is asked of SSM and EC2 to find the images of a class.

use std::collections::BTreeMap;

use kerf_aws_api::{AliasVersion, AmiSelectorTerm, Ec2NodeClassSpec};
use kerf_aws_wire::ec2::{DescribeImagesRequest, Filter};
use kerf_model::Requirements;

use super::{UnsupportedAlias, aliases};
use crate::class_status::{filter, tag_filters};

/// What has to be looked up for a class: first the parameters, then, with their values, the images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImagePlan {
    parameters: Vec<Parameter>,
    ids: Vec<String>,
    searches: Vec<ImageQuery>,
}

/// A parameter of SSM that holds the id of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub origin: Origin,
    /// The machines that the image is for, as far as the parameter says it.
    requirements: Vec<Requirements>,
}

/// It decides how long the value may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// AWS changes it with each release.
    LatestAlias,
    PinnedAlias,
    User,
}

/// One call of `DescribeImages`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageQuery {
    filters: Vec<Filter>,
    owners: Vec<String>,
    known: BTreeMap<String, Vec<Requirements>>,
}

/// The calls that are to be made, and what could not be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    pub queries: Vec<ImageQuery>,
    pub skipped: Vec<Skipped>,
}

/// A parameter of the user's that gives no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skipped {
    #[error("the SSM parameter {0} does not exist")]
    NotFound(String),
    #[error("the value {value:?} of the SSM parameter {name} is not the id of an AMI")]
    NotAnId { name: String, value: String },
}

impl ImagePlan {
    /// `version` is that of the cluster, such as `1.33`.
    pub fn new(spec: &Ec2NodeClassSpec, version: &str) -> Result<Self, UnsupportedAlias> {
        let mut plan = Self::default();
        // An alias is always the only term.
        if let Some(alias) = spec.alias() {
            let origin = match alias.version() {
                AliasVersion::Latest => Origin::LatestAlias,
                AliasVersion::Pinned(_) => Origin::PinnedAlias,
            };
            let named = aliases::parameters(alias, version)?.into_iter();
            plan.parameters = named
                .map(|(name, requirements)| Parameter { name, origin, requirements })
                .collect();
            return Ok(plan);
        }
        for term in &spec.ami_selector_terms {
            if let Some(id) = &term.id {
                plan.ids.push(id.clone());
            } else if let Some(name) = &term.ssm_parameter {
                let requirements = Vec::new();
                let name = name.clone();
                plan.parameters.push(Parameter { name, origin: Origin::User, requirements });
            } else {
                plan.searches.push(ImageQuery::search(term));
            }
        }
        Ok(plan)
    }

    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The calls of EC2, when the values of the parameters that exist are known. No queries: nothing was found to ask for.
    pub fn resolve(&self, values: &BTreeMap<String, String>) -> Resolved {
        let mut ids = self.ids.clone();
        let mut known: BTreeMap<String, Vec<Requirements>> = BTreeMap::new();
        let mut skipped = Vec::new();
        for Parameter { name, origin, requirements } in &self.parameters {
            match values.get(name) {
                Some(id) if id.starts_with("ami-") => {
                    ids.push(id.clone());
                    if !requirements.is_empty() {
                        known.entry(id.clone()).or_default().extend(requirements.iter().cloned());
                    }
                }
                Some(value) => {
                    skipped.push(Skipped::NotAnId { name: name.clone(), value: value.clone() });
                }
                // AWS does not make every variant of every release.
                None if *origin != Origin::User => {}
                None => skipped.push(Skipped::NotFound(name.clone())),
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let mut queries = self.searches.clone();
        if !ids.is_empty() {
            let filters = vec![filter("image-id", ids)];
            queries.push(ImageQuery { filters, owners: Vec::new(), known });
        }
        Resolved { queries, skipped }
    }
}

impl ImageQuery {
    fn search(term: &AmiSelectorTerm) -> Self {
        let mut filters = Vec::new();
        filters.extend(term.name.clone().map(|name| filter("name", [name])));
        filters.extend(tag_filters(&term.tags));
        let owners = match (&term.owner, &term.name) {
            (Some(owner), _) => vec![owner.clone()],
            // A name can be that of anybody's public image.
            (None, Some(_)) => vec!["self".to_owned(), "amazon".to_owned()],
            (None, None) => Vec::new(),
        };
        Self { filters, owners, known: BTreeMap::new() }
    }

    /// Deprecated images are asked for too: they are taken when there is nothing better.
    pub fn request(&self) -> DescribeImagesRequest {
        let state = filter("state", ["available".to_owned()]);
        DescribeImagesRequest {
            filters: self.filters.iter().cloned().chain([state]).collect(),
            owners: self.owners.clone(),
            include_deprecated: Some(true),
            max_results: Some(1000),
            ..DescribeImagesRequest::default()
        }
    }

    /// The sets of machines that the image is for; one without requirements if nothing is known.
    pub(super) fn requirements(&self, image: &str) -> Vec<Requirements> {
        self.known.get(image).cloned().unwrap_or_else(|| vec![Requirements::default()])
    }
}
