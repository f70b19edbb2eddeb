//! Whether instances of a class could be launched: what can be seen without asking, then a launch that EC2 only pretends to make.

use std::time::Duration;

use kerf_api::conditions::VALIDATION_SUCCEEDED;
use kerf_aws_api::{
    AmiFamily, Ec2NodeClassStatus,
    conditions::{CheckedCall, NotReady},
};
use kerf_aws_client::AwsError;
use kerf_aws_model::{
    class_status::{Account, DryRun, NoDryRun},
    errors::Meaning,
    instance_types::PlacementGroup,
    launch_template::NoTemplate,
    user_data::{Refusal, UserData},
};
use kerf_model::Requirements;

use super::lookup::{Look, Obstacle};
use crate::errors;

const PASSED_HOLDS: Duration = Duration::from_mins(30);
/// Somebody is about to mend it.
const REFUSED_HOLDS: Duration = Duration::from_mins(1);

/// What came of a launch that was tried out.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    /// What it rests on.
    of: Ec2NodeClassStatus,
    placement: Option<PlacementGroup>,
    pub(super) result: Result<Option<UserData>, NotReady>,
}

impl Look<'_> {
    /// What keeps every node from being launched and can be seen without a launch.
    pub(super) fn check(&self) -> Result<(), NotReady> {
        let cluster = self.cloud.cluster();
        let needs_cidr = self.class.spec.ami_family() == AmiFamily::Al2023;
        if needs_cidr && cluster.access.service_cidr.is_none() {
            let error = "eks:DescribeCluster has not given it".to_owned();
            return Err(NotReady::ClusterCidrResolutionFailed { error });
        }
        self.class.spec.validate()
    }

    /// The class has its new status. `pools` are those of the class, with what they ask for. Gives the user data of the launch,
    /// if one was tried.
    pub(super) async fn try_out(
        &self,
        placement: Option<&PlacementGroup>,
        pools: &[(String, Requirements)],
    ) -> Result<Option<UserData>, Obstacle> {
        if !self.cloud.options().dry_run {
            return Ok(None);
        }
        let of = rests_on(self.class.status.as_ref());
        let kept = |holds| {
            let kept = self.memory.verdict.get(self.now, holds);
            kept.filter(|one| one.of == of && one.placement.as_ref() == placement)
        };
        let passed = kept(PASSED_HOLDS).filter(|verdict| verdict.result.is_ok());
        if let Some(verdict) = passed.or_else(|| kept(REFUSED_HOLDS)) {
            return Ok(verdict.result?);
        }
        let result = match self.dry_run(placement, pools).await {
            Ok(user_data) => Ok(Some(user_data)),
            Err(Obstacle::Refused(refusal)) => Err(refusal),
            // May be over in a moment, and is not remembered.
            Err(other) => return Err(other),
        };
        let placement = placement.cloned();
        self.memory.verdict.keep(self.now, &Verdict { of, placement, result: result.clone() });
        Ok(result?)
    }

    async fn dry_run(
        &self,
        placement: Option<&PlacementGroup>,
        pools: &[(String, Requirements)],
    ) -> Result<UserData, Obstacle> {
        let (cluster, offers) = (self.cloud.cluster(), self.cloud.offers());
        let region = offers.note(|market, _| std::sync::Arc::clone(&market.region));
        let account = Account {
            cluster: &cluster,
            region: &region,
            settings: offers.settings(),
            labels: self.cloud.labels(),
        };
        let launch = DryRun::new(self.class, placement, pools, account)
            .map_err(|error| no_launch(&error))?;
        self.fence.check()?;
        let templates = std::slice::from_ref(&launch.template);
        let made = self.cloud.templates().ensure(self.aws(), templates, self.now).await;
        made.map_err(|error| refused(CheckedCall::CreateLaunchTemplate, error))?;
        self.passed(
            CheckedCall::CreateFleet,
            self.aws().create_fleet(&launch.fleet).await,
            &launch,
        )?;
        let mut first = None;
        for request in &launch.instances {
            let run = self.aws().run_instances(request).await;
            match self.passed(CheckedCall::RunInstances, run, &launch) {
                Ok(()) => return Ok(launch.template.user_data),
                Err(obstacle) => first = first.or(Some(obstacle)),
            }
        }
        first.map_or(Ok(launch.template.user_data), Err)
    }

    fn passed<T>(
        &self,
        call: CheckedCall,
        answer: Result<T, AwsError>,
        launch: &DryRun,
    ) -> Result<(), Obstacle> {
        let Err(error) = answer else { return Ok(()) };
        match error.meaning() {
            Meaning::DryRunPassed => Ok(()),
            Meaning::LaunchTemplateGone => {
                self.cloud.templates().forget(std::slice::from_ref(&launch.template));
                Err(Obstacle::Failed(error))
            }
            // For seconds after it was made. One that the user names may not exist at all.
            Meaning::InstanceProfileUnknown => Err(match &self.class.spec.instance_profile {
                Some(name) => NotReady::InstanceProfileNotFound { name: name.clone() }.into(),
                None => Obstacle::Failed(error),
            }),
            _ => Err(refused(call, error)),
        }
    }
}

/// The parts of a status that a launch follows from. The order of subnets changes with their free addresses.
fn rests_on(status: Option<&Ec2NodeClassStatus>) -> Ec2NodeClassStatus {
    let mut of = status.cloned().unwrap_or_default();
    of.conditions.clear();
    of.capacity_reservations.clear();
    of.subnets.sort_by(|one, other| one.id.cmp(&other.id));
    of
}

fn refused(call: CheckedCall, error: AwsError) -> Obstacle {
    match error.meaning() {
        Meaning::Unauthorized if error.operation == call.to_string() => {
            NotReady::Unauthorized { call, error: errors::told(&error) }.into()
        }
        Meaning::UserDataTooLarge => {
            NotReady::UserDataTooLarge { error: errors::told(&error) }.into()
        }
        _ => Obstacle::of(VALIDATION_SUCCEEDED, error),
    }
}

fn no_launch(error: &NoDryRun) -> NotReady {
    let text = error.to_string();
    match error {
        NoDryRun::Template(NoTemplate::UserData(Refusal::TooLarge { .. })) => {
            NotReady::UserDataTooLarge { error: text }
        }
        _ => NotReady::NothingToLaunch { error: text },
    }
}
