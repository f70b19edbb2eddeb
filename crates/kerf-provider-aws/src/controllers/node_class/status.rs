//! The status of a class: its conditions, and what they rest on.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kerf_api::{
    NodeClass,
    conditions::{Conditioned, READY, Status, VALIDATION_SUCCEEDED},
    decode::Unreadable,
};
use kerf_aws_api::{
    Ami, Ec2NodeClass, Ec2NodeClassStatus, annotations,
    conditions::{
        self, AMIS_READY, CAPACITY_RESERVATIONS_READY, DEPENDENCIES_NOT_READY,
        INSTANCE_PROFILE_READY, NotReady, PLACEMENT_GROUP_READY, SECURITY_GROUPS_READY,
        SUBNETS_READY,
    },
};
use kerf_aws_model::{
    drift::{FirstSeen, Rollout},
    instance_types::PlacementGroup,
    user_data::{MAX_BYTES, UserData},
};
use kerf_model::Requirements;
use kerf_provider::{BoxError, ControllerContext};
use kerf_runtime::{
    Outcome, WriteRefused,
    events::{Notice, Severity},
};
use kube::ResourceExt;
use serde_json::Value;
use tracing::warn;

use super::{
    NodeClasses, is_ours,
    lookup::{Look, Obstacle},
};
use crate::errors;

const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// The reason of a condition of which nothing can be said because a call failed.
const CALL_FAILED: &str = "CallFailed";
/// What a launch cannot be tried without.
const NEEDED: [&str; 5] = [
    AMIS_READY,
    INSTANCE_PROFILE_READY,
    SECURITY_GROUPS_READY,
    SUBNETS_READY,
    PLACEMENT_GROUP_READY,
];

/// A class on its way to its new status.
struct Draft {
    class: Ec2NodeClass,
    dependents: &'static [&'static str],
    now: Timestamp,
    /// What has to be tried again.
    failed: Option<String>,
    notices: Vec<(Severity, String, String)>,
}

impl NodeClasses {
    pub(super) async fn renew(
        &self,
        context: &dyn ControllerContext,
        class: &NodeClass,
        read: Ec2NodeClass,
    ) -> Result<Outcome, BoxError> {
        let (memory, now) = (self.memory(&read), context.clock().now());
        let (cloud, fence) = (&*self.cloud, context.fence());
        let look = Look { cloud, class: &read, memory: &memory, fence, now };
        let reserved_capacity = cloud.offers().settings().reserved_capacity;
        let reserved =
            async { if reserved_capacity { look.reservations().await } else { Ok(Vec::new()) } };
        let (images, reservations, placement, subnets, groups, profile) = tokio::join!(
            look.images(&self.parameters),
            reserved,
            look.placement(),
            look.subnets(),
            look.security_groups(),
            look.profile(),
        );
        let mut draft = Draft {
            class: read.clone(),
            dependents: conditions::dependents(reserved_capacity),
            now,
            failed: None,
            notices: Vec::new(),
        };
        if let Ok(found) = &images {
            let published = found.published.clone();
            cloud.offers().note(|market, _| market.published.extend(published));
            let skipped = found.skipped.iter().map(ToString::to_string);
            draft.warn("InvalidSSMParameter", skipped);
        }
        draft.settle(AMIS_READY, images.map(|found| found.amis), |status, amis| {
            status.amis = amis;
        })?;
        if reserved_capacity {
            let found = reservations.map(|all| all.into_iter().map(|(one, _)| one).collect());
            draft.settle(CAPACITY_RESERVATIONS_READY, found, |status, all| {
                status.capacity_reservations = all;
            })?;
        } else {
            draft.without_reservations();
        }
        let placement = self.known_placement(&read, placement);
        draft.settle(PLACEMENT_GROUP_READY, placement, |_, ()| ())?;
        let subnets = subnets.map(|all| all.into_iter().map(|(one, _)| one).collect());
        draft.settle(SUBNETS_READY, subnets, |status, all| status.subnets = all)?;
        draft.settle(SECURITY_GROUPS_READY, groups, |status, all| status.security_groups = all)?;
        draft.settle(INSTANCE_PROFILE_READY, profile.map(Some), |status, name| {
            status.instance_profile = name;
        })?;
        let tried = draft.class.clone();
        let look = Look { class: &tried, ..look };
        self.validate(context, look, &mut draft).await?;
        draft.date_images(&read);
        draft.compare(&read);
        draft.write(context, class).await
    }

    /// The group is not part of the status. A group that cannot be found now is still that of the nodes that run.
    fn known_placement(
        &self,
        class: &Ec2NodeClass,
        found: Result<Option<PlacementGroup>, Obstacle>,
    ) -> Result<(), Obstacle> {
        let (found, name) = (found?, class.name_any());
        let offers = self.cloud.offers();
        let differs = offers.note(|market, _| market.placement_groups.get(&name) != found.as_ref());
        if differs {
            offers.change(|market, _| match found {
                Some(group) => drop(market.placement_groups.insert(name, group)),
                None => drop(market.placement_groups.remove(&name)),
            });
        }
        Ok(())
    }

    async fn validate(
        &self,
        context: &dyn ControllerContext,
        look: Look<'_>,
        draft: &mut Draft,
    ) -> Result<(), WriteRefused> {
        if let Err(refusal) = look.check() {
            return draft.settle(VALIDATION_SUCCEEDED, Err::<(), _>(refusal.into()), |_, ()| ());
        }
        let with = |status: Status| {
            let all = NEEDED.iter().copied();
            all.filter(|kind| draft.class.condition_status(kind) == status).collect::<Vec<_>>()
        };
        let (refused, unknown) = (with(Status::False), with(Status::Unknown));
        if !refused.is_empty() || !unknown.is_empty() {
            let waiting = NotReady::DependenciesNotReady {
                waiting_for: if refused.is_empty() { unknown } else { refused.clone() },
            };
            let mut set = draft.class.condition_set_of(draft.dependents, draft.now);
            if refused.is_empty() {
                let (reason, message) = (waiting.reason(), waiting.to_string());
                set.set_unknown_because(VALIDATION_SUCCEEDED, reason, &message);
            } else {
                waiting.set(&mut set);
            }
            return Ok(());
        }
        let name = look.class.name_any();
        let placement =
            self.cloud.offers().note(|market, _| market.placement_groups.get(&name).cloned());
        let pools = self.pools_of(context, &name);
        let tried = look.try_out(placement.as_ref(), &pools).await;
        if let Ok(Some(user_data)) = &tried {
            draft.remark(user_data);
        }
        draft.settle(VALIDATION_SUCCEEDED, tried, |_, _| ())
    }

    /// The pools of a class with what they ask for.
    fn pools_of(
        &self,
        context: &dyn ControllerContext,
        class: &str,
    ) -> Vec<(String, Requirements)> {
        let cluster = context.cluster();
        let of_class = cluster.pools().values().filter(|pool| {
            let reference = &pool.spec.template.spec.node_class_ref;
            is_ours(reference) && reference.name == class
        });
        let wish = |pool: &std::sync::Arc<kerf_api::NodePool>| {
            let requirements = &pool.spec.template.spec.requirements;
            (pool.name_any(), self.cloud.labels().requirements(requirements))
        };
        of_class.map(wish).collect()
    }
}

impl Draft {
    /// What was found out goes into the status. What somebody has to mend is a condition that is false, and clears what it is
    /// about, unless it could not be looked up. A call that may succeed the next time changes nothing that is known of this
    /// generation.
    fn settle<T: Default>(
        &mut self,
        condition: &'static str,
        found: Result<T, Obstacle>,
        write: impl FnOnce(&mut Ec2NodeClassStatus, T),
    ) -> Result<(), WriteRefused> {
        let status = self.class.status.get_or_insert_default();
        match found {
            Ok(value) => {
                write(status, value);
                self.class.condition_set_of(self.dependents, self.now).set_true(condition);
            }
            Err(Obstacle::Refused(refusal)) => {
                if !matches!(refusal, NotReady::LookUpDenied { .. }) {
                    write(status, T::default());
                }
                refusal.set(&mut self.class.condition_set_of(self.dependents, self.now));
            }
            Err(Obstacle::Failed(error)) => {
                let message =
                    format!("{} failed: {}", errors::action(&error), errors::told(&error));
                let generation = self.class.metadata.generation;
                let known = self.class.condition(condition);
                let holds = known.is_some_and(|one| {
                    one.status == "True" && one.observed_generation == generation
                });
                if !holds {
                    let mut set = self.class.condition_set_of(self.dependents, self.now);
                    set.set_unknown_because(condition, CALL_FAILED, &message);
                }
                self.failed.get_or_insert(message);
            }
            Err(Obstacle::NotLeading(refused)) => return Err(refused),
        }
        Ok(())
    }

    /// The feature gate is off.
    fn without_reservations(&mut self) {
        self.class.status.get_or_insert_default().capacity_reservations.clear();
        let mut set = self.class.condition_set_of(self.dependents, self.now);
        // It is no dependent now, so that it can be cleared.
        let _ = set.clear(CAPACITY_RESERVATIONS_READY);
    }

    /// Since when the class has had its images, for those who want them to be rolled out slowly.
    fn date_images(&mut self, before: &Ec2NodeClass) {
        let written = before.metadata.annotations.as_ref();
        let annotations = self.class.metadata.annotations.get_or_insert_default();
        match Rollout::read(written) {
            Ok(rollout) if rollout == Rollout::default() => {
                annotations.remove(annotations::AMI_FIRST_SEEN);
            }
            Ok(_) => {
                let amis = self.class.status.iter().flat_map(|status| &status.amis);
                let amis: Vec<_> = amis.cloned().collect();
                // While none are known nothing is new and nothing is over.
                if !amis.is_empty() {
                    let seen = FirstSeen::read(written).with(&amis, self.now).write();
                    annotations.insert(annotations::AMI_FIRST_SEEN.to_owned(), seen);
                }
            }
            Err(error) => self.warn("InvalidAMIRollout", [error.to_string()]),
        }
    }

    fn warn(&mut self, reason: &str, messages: impl IntoIterator<Item = String>) {
        let warning = |message| (Severity::Warning, reason.to_owned(), message);
        self.notices.extend(messages.into_iter().map(warning));
    }

    fn remark(&mut self, user_data: &UserData) {
        if user_data.is_near_limit() {
            let bytes = user_data.text().len();
            let message = format!("the user data has {bytes} bytes, and EC2 takes {MAX_BYTES}");
            self.warn("UserDataNearLimit", [message]);
        }
        if !user_data.ignored().is_empty() {
            let keys = user_data.ignored().join(", ");
            let message = format!("spec.userData has keys that are not settings: {keys}");
            self.warn("UserDataIgnored", [message]);
        }
    }

    /// What users have to see of what is new.
    fn compare(&mut self, before: &Ec2NodeClass) {
        // Ready follows from the others, and so does a launch that is not tried.
        let refused = self.class.conditions().iter().filter(|one| {
            one.status == "False" && one.type_ != READY && one.reason != DEPENDENCIES_NOT_READY
        });
        let new = refused.filter(|now| {
            let then = before.condition(&now.type_);
            then.is_none_or(|then| {
                (&then.status, &then.reason, &then.message)
                    != (&now.status, &now.reason, &now.message)
            })
        });
        let told = new.map(|now| (Severity::Warning, now.reason.clone(), now.message.clone()));
        let told: Vec<_> = told.collect();
        self.notices.extend(told);
        let ids = |class: &Ec2NodeClass| -> BTreeSet<String> {
            let amis = class.status.iter().flat_map(|status| &status.amis);
            amis.map(|ami: &Ami| ami.id.clone()).collect()
        };
        let (then, now) = (ids(before), ids(&self.class));
        if !then.is_empty() && !now.is_empty() && then != now {
            let list = |ids: std::collections::btree_set::Difference<'_, String>| {
                ids.cloned().collect::<Vec<_>>().join(", ")
            };
            let (new, gone) = (list(now.difference(&then)), list(then.difference(&now)));
            let message = format!("amiSelectorTerms select other AMIs. New: {new}. Gone: {gone}");
            self.notices.push((Severity::Normal, "AMIsChanged".to_owned(), message));
        }
    }

    async fn write(
        self,
        context: &dyn ControllerContext,
        class: &NodeClass,
    ) -> Result<Outcome, BoxError> {
        let mut changed = class.object().clone();
        changed.metadata.annotations.clone_from(&self.class.metadata.annotations);
        write_status(&mut changed.data, self.class.status.as_ref())?;
        if changed != *class.object() {
            context.write_node_class(class, changed).await?;
        }
        for (severity, reason, message) in self.notices {
            let same_if = vec![self.class.uid().unwrap_or_default(), message.clone()];
            let notice = Notice::about(&self.class, severity, reason, message);
            context.recorder().record(notice.same_if(same_if).repeat_after(REPEAT));
        }
        if let Some(failed) = self.failed {
            warn!(class = class.reference.name, failed, "part of an EC2NodeClass is not known");
            return Ok(Outcome::Backoff);
        }
        let ends = self.class.status.iter().flat_map(|status| &status.capacity_reservations);
        let ends = ends.filter_map(|one| one.end_time.as_ref());
        let ends = ends.filter_map(|end| Duration::try_from(end.0.duration_since(self.now)).ok());
        Ok(Outcome::After(ends.min().map_or(LOOK_AGAIN, |end| end.min(LOOK_AGAIN))))
    }
}

/// What is wrong and stays so is said again after this time.
const REPEAT: Duration = Duration::from_hours(1);

fn write_status(
    data: &mut Value,
    status: Option<&Ec2NodeClassStatus>,
) -> Result<(), serde_json::Error> {
    let status = serde_json::to_value(status)?;
    if let Value::Object(data) = data {
        data.insert("status".to_owned(), status);
    }
    Ok(())
}

/// The spec cannot be read, so that nothing can be looked up. It can be mended only by an edit.
pub(super) async fn refuse(
    context: &dyn ControllerContext,
    class: &NodeClass,
    unreadable: &Unreadable,
) -> Result<Outcome, BoxError> {
    let object = class.object();
    let status = object.data.get("status").cloned();
    let status = status.and_then(|status| serde_json::from_value(status).ok());
    let refusal =
        NotReady::Unreadable { field: unreadable.field.clone(), error: unreadable.reason.clone() };
    let mut read = Ec2NodeClass { metadata: object.metadata.clone(), status, ..Default::default() };
    let now = context.clock().now();
    let new = refusal.set(&mut read.condition_set(now));
    let mut changed = object.clone();
    write_status(&mut changed.data, read.status.as_ref())?;
    context.write_node_class(class, changed).await?;
    if new {
        let message = refusal.to_string();
        context.recorder().record(Notice::about(
            &read,
            Severity::Warning,
            refusal.reason(),
            message,
        ));
    }
    Ok(Outcome::Done)
}
