//! Calls about instances that exist.

use base64::{Engine, prelude::BASE64_STANDARD};
use kerf_aws_wire::ec2;

use super::describe::state;
use super::{End, Instance, State};
use crate::cloud::{Answer, Cloud};
use crate::filters::{select, tags_of};
use crate::paging::{PageSize, page};
use crate::refused::Refused;

const PAGE: PageSize = PageSize::new(5, 1000, 1000);

impl Cloud {
    /// An instance that calls know of.
    fn visible(&self, id: &str) -> Result<&Instance, Refused> {
        let hexadecimal = |digits: &str| {
            matches!(digits.len(), 8 | 17) && digits.chars().all(|digit| digit.is_ascii_hexdigit())
        };
        if !id.strip_prefix("i-").is_some_and(hexadecimal) {
            let message = format!("Invalid id: \"{id}\"");
            return Err(Refused::new("InvalidInstanceID.Malformed", message));
        }
        let found = self.instances.get(id).filter(|instance| instance.visible <= self.now);
        found.ok_or_else(|| {
            let message = format!("The instance ID '{id}' does not exist");
            Refused::new("InvalidInstanceID.NotFound", message)
        })
    }
}

fn not_both(ids: &[String], max_results: Option<i32>) -> Result<(), Refused> {
    if ids.is_empty() || max_results.is_none() {
        return Ok(());
    }
    let message = "The parameter instancesSet cannot be used with the parameter maxResults";
    Err(Refused::new("InvalidParameterCombination", message))
}

impl Answer for ec2::DescribeInstancesRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        not_both(&self.instance_ids, self.max_results)?;
        for id in &self.instance_ids {
            cloud.visible(id)?;
        }
        let wanted = |instance: &&Instance| {
            instance.visible <= cloud.now
                && (self.instance_ids.is_empty() || self.instance_ids.contains(&instance.id))
        };
        let all = cloud.instances.values().filter(wanted);
        let found = select(
            all,
            &self.filters,
            |instance| &instance.tags,
            |instance, name| instance.texts(name, cloud),
        )?;
        let (found, next_token) = page(
            found,
            |instance| instance.id.clone(),
            &PAGE,
            self.max_results,
            self.next_token.as_deref(),
        )?;
        // Every instance of a fleet is a reservation of its own.
        let reservation = |instance: &Instance| ec2::Reservation {
            instances: vec![instance.describe(cloud)],
            reservation_id: instance.id.strip_prefix("i-").map(|digits| format!("r-{digits}")),
        };
        let reservations = found.into_iter().map(reservation).collect();
        Ok(ec2::DescribeInstancesResponse { next_token, reservations })
    }
}

impl Answer for ec2::DescribeInstanceStatusRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        not_both(&self.instance_ids, self.max_results)?;
        for id in &self.instance_ids {
            cloud.visible(id)?;
        }
        let wanted = |instance: &&Instance| {
            instance.visible <= cloud.now
                && (self.include_all_instances == Some(true) || instance.state == State::Running)
                && (self.instance_ids.is_empty() || self.instance_ids.contains(&instance.id))
        };
        let all = cloud.instances.values().filter(wanted);
        let found =
            select(all, &self.filters, |instance| &instance.tags, super::Instance::status_texts)?;
        let (found, next_token) = page(
            found,
            |instance| instance.id.clone(),
            &PAGE,
            self.max_results,
            self.next_token.as_deref(),
        )?;
        let instance_statuses = found.into_iter().map(|one| one.status(cloud)).collect();
        Ok(ec2::DescribeInstanceStatusResponse { instance_statuses, next_token })
    }
}

impl Answer for ec2::TerminateInstancesRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    /// One id that is wrong fails the whole call.
    fn check(&self, cloud: &Cloud) -> Result<(), Refused> {
        if self.instance_ids.is_empty() {
            return Err(Refused::missing("InstanceId"));
        }
        self.instance_ids.iter().try_for_each(|id| cloud.visible(id).map(|_| ()))
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let mut terminating_instances = Vec::new();
        for id in &self.instance_ids {
            let before = cloud.visible(id)?.state;
            cloud.end(id, End::Asked);
            terminating_instances.push(ec2::InstanceStateChange {
                current_state: Some(state(cloud.visible(id)?.state)),
                instance_id: Some(id.clone()),
                previous_state: Some(state(before)),
            });
        }
        Ok(ec2::TerminateInstancesResponse { terminating_instances })
    }
}

/// A thing has no more tags; those of AWS itself do not count.
const MOST_TAGS: usize = 50;

impl Answer for ec2::CreateTagsRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn check(&self, cloud: &Cloud) -> Result<(), Refused> {
        let tags = tags_of(&self.tags);
        if tags.keys().any(|key| key.starts_with("aws:")) {
            let message = "Tag keys starting with 'aws:' are reserved for internal use";
            return Err(Refused::invalid_value(message));
        }
        for id in &self.resources {
            if !id.starts_with("i-") {
                let message = format!("The ID '{id}' is not valid");
                return Err(Refused::new("InvalidID", message));
            }
            let instance = cloud.visible(id)?;
            let own = instance.tags.keys().filter(|key| !key.starts_with("aws:"));
            let new = tags.keys().filter(|key| !instance.tags.contains_key(*key));
            if own.count() + new.count() > MOST_TAGS {
                let message = "The maximum number of tags per resource has been reached";
                return Err(Refused::new("TagLimitExceeded", message));
            }
        }
        Ok(())
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let tags = tags_of(&self.tags);
        for id in &self.resources {
            if let Some(instance) = cloud.instances.get_mut(id) {
                instance.tags.extend(tags.clone());
            }
        }
        Ok(ec2::CreateTagsResponse {})
    }
}

impl Answer for ec2::GetConsoleOutputRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let instance = cloud.visible(self.instance_id.as_deref().unwrap_or_default())?;
        let output =
            (!instance.console.is_empty()).then(|| BASE64_STANDARD.encode(&instance.console));
        Ok(ec2::GetConsoleOutputResponse {
            instance_id: Some(instance.id.clone()),
            timestamp: output.as_ref().map(|_| cloud.now),
            output,
        })
    }
}
