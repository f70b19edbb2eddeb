//! What EC2 says to a fleet: an instance, and why others were not to be had.

use std::fmt;

use kerf_api::labels;
use kerf_aws_wire::ec2::{CreateFleetError, CreateFleetInstance, CreateFleetResponse};
use kerf_model::KnownLabels;

use crate::{
    errors::{Lack, LaunchReason, Meaning},
    launch_template::LaunchTemplate,
};

/// An answer to `CreateFleet`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetAnswer {
    pub fleet: Option<String>,
    pub instance: Option<FleetInstance>,
    /// Offerings that EC2 tried in vain; there may be some beside an instance.
    pub shortfalls: Vec<Shortfall>,
}

/// What was launched, as far as the answer says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetInstance {
    pub id: String,
    pub instance_type: String,
    pub zone: String,
    pub subnet: Option<String>,
    pub image: String,
}

/// An offering that was not to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    pub instance_type: String,
    pub zone: String,
    pub subnet: Option<String>,
    pub code: String,
    pub message: String,
    pub meaning: Meaning,
}

/// What is not to be tried again for a while.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    Offering {
        instance_type: String,
        zone: String,
    },
    /// All types of the launch, in the spread placement group of the launch.
    ZoneOfGroup {
        zone: String,
    },
    Subnet {
        id: String,
    },
    /// All spot offerings: the account lacks the role for them.
    Spot,
    /// Nothing is left of it.
    Reservation {
        id: String,
    },
}

/// Why a fleet launched nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetFailure {
    /// What was asked for cannot be had now, and nothing else is wrong.
    NoCapacity,
    Failed {
        reason: LaunchReason,
        message: String,
    },
}

impl FleetAnswer {
    pub fn read(response: CreateFleetResponse) -> Self {
        let with_instance = response.instances.into_iter().find(|one| !one.instance_ids.is_empty());
        Self {
            fleet: response.fleet_id,
            instance: with_instance.and_then(FleetInstance::read),
            shortfalls: response.errors.into_iter().map(Shortfall::read).collect(),
        }
    }

    /// An answer with neither instance nor error counts as a lack.
    pub fn outcome(&self) -> Result<&FleetInstance, FleetFailure> {
        if let Some(instance) = &self.instance {
            return Ok(instance);
        }
        let others = || self.shortfalls.iter().filter(|shortfall| !shortfall.is_shortage());
        let Some(reason) = others().map(Shortfall::reason).min() else {
            return Err(FleetFailure::NoCapacity);
        };
        // The same error comes once for each offering.
        let mut messages: Vec<_> = others()
            .filter(|shortfall| shortfall.reason() == reason)
            .map(ToString::to_string)
            .collect();
        messages.sort();
        messages.dedup();
        Err(FleetFailure::Failed { reason, message: messages.join("; ") })
    }

    /// What the shortfalls say of the next launches, each once.
    pub fn marks(
        &self,
        capacity_type: &str,
        templates: &[LaunchTemplate],
        labels: &KnownLabels,
    ) -> Vec<Mark> {
        let mut marks: Vec<_> = self
            .shortfalls
            .iter()
            .flat_map(|shortfall| shortfall.marks(capacity_type, templates, labels))
            .collect();
        marks.sort();
        marks.dedup();
        marks
    }
}

impl FleetInstance {
    fn read(instance: CreateFleetInstance) -> Option<Self> {
        let overrides = instance
            .launch_template_and_overrides
            .and_then(|template| template.overrides)
            .unwrap_or_default();
        Some(Self {
            id: instance.instance_ids.into_iter().next()?,
            instance_type: instance.instance_type.or(overrides.instance_type).unwrap_or_default(),
            zone: overrides.availability_zone.or(instance.availability_zone).unwrap_or_default(),
            subnet: overrides.subnet_id.or(instance.subnet_id),
            image: overrides.image_id.unwrap_or_default(),
        })
    }
}

impl Shortfall {
    fn read(error: CreateFleetError) -> Self {
        let overrides = error
            .launch_template_and_overrides
            .and_then(|template| template.overrides)
            .unwrap_or_default();
        let code = error.error_code.unwrap_or_default();
        let message = error.error_message.unwrap_or_default();
        Self {
            instance_type: overrides.instance_type.unwrap_or_default(),
            zone: overrides.availability_zone.unwrap_or_default(),
            subnet: overrides.subnet_id,
            meaning: Meaning::of(&code, &message),
            code,
            message,
        }
    }

    pub fn reason(&self) -> LaunchReason {
        LaunchReason::of(&self.code, &self.message)
    }

    /// Whether other offerings may still be had. That spot lacks its role says nothing of on-demand.
    fn is_shortage(&self) -> bool {
        matches!(self.meaning, Meaning::NoCapacity(_) | Meaning::SpotRoleMissing)
    }

    fn marks(
        &self,
        capacity_type: &str,
        templates: &[LaunchTemplate],
        labels: &KnownLabels,
    ) -> Vec<Mark> {
        let mut marks = Vec::new();
        match self.meaning {
            Meaning::SpotRoleMissing => marks.push(Mark::Spot),
            Meaning::NoCapacity(lack) => {
                if let (Lack::Subnet, Some(id)) = (lack, &self.subnet) {
                    marks.push(Mark::Subnet { id: id.clone() });
                }
                if capacity_type == labels::CAPACITY_TYPE_RESERVED {
                    // A full placement group says nothing of the reservation.
                    let id = self.reservation(templates, labels);
                    let id = id.filter(|_| lack != Lack::SpreadGroup);
                    marks.extend(id.map(|id| Mark::Reservation { id }));
                } else if lack == Lack::SpreadGroup {
                    marks.push(Mark::ZoneOfGroup { zone: self.zone.clone() });
                } else {
                    let instance_type = self.instance_type.clone();
                    marks.push(Mark::Offering { instance_type, zone: self.zone.clone() });
                }
            }
            _ => {}
        }
        marks
    }

    /// The reservation that the offering belongs to.
    fn reservation(&self, templates: &[LaunchTemplate], labels: &KnownLabels) -> Option<String> {
        let is_of_offering = |template: &&LaunchTemplate| {
            let id = template.reservation.as_ref().map(|reservation| reservation.id.as_str());
            let types = template.types.iter().filter(|one| one.name() == self.instance_type);
            types.flat_map(|one| one.offerings()).any(|offering| {
                id.is_some()
                    && offering.reservation_id(labels) == id
                    && offering.zone() == Some(&self.zone)
            })
        };
        templates.iter().find(is_of_offering)?.reservation.as_ref().map(|one| one.id.clone())
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            f.write_str(&self.code)
        } else {
            write!(f, "{}: {}", self.code, self.message)
        }
    }
}
