//! The images of a class, by SSM and EC2.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kerf_aws_api::{Ami, conditions::NotReady};
use kerf_aws_client::{Aws, AwsError, all_pages};
use kerf_aws_model::images::{self, ImagePlan, Origin, Parameter, Skipped};
use kerf_aws_wire::ssm::GetParameterRequest;

use super::lookup::{Look, Obstacle};

/// A release of AWS's reaches the classes within a day.
const OF_AWS_HOLDS: Duration = Duration::from_hours(24);
const OF_USER_HOLDS: Duration = Duration::from_mins(5);
/// What does not exist may be written soon.
const NOTHING_HOLDS: Duration = Duration::from_mins(5);
/// A parameter that names a deprecated image is asked for again so often.
const DEPRECATED_HOLDS: Duration = Duration::from_mins(30);

/// The images of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundImages {
    pub(super) amis: Vec<Ami>,
    pub(super) published: BTreeMap<String, Timestamp>,
    /// Parameters of the user's that give no image.
    pub(super) skipped: Vec<Skipped>,
}

/// Parameters of SSM that were read, for all classes.
#[derive(Debug, Default)]
pub(super) struct Parameters(Mutex<BTreeMap<String, (Timestamp, Option<String>)>>);

impl Parameters {
    /// The value; `None` if there is no such parameter.
    async fn get(
        &self,
        aws: &dyn Aws,
        parameter: &Parameter,
        now: Timestamp,
    ) -> Result<Option<String>, AwsError> {
        let known = self.lock().get(&parameter.name).cloned();
        if let Some((read, value)) = known {
            let holds = match (&value, parameter.origin) {
                (None, _) => NOTHING_HOLDS,
                (Some(_), Origin::User) => OF_USER_HOLDS,
                (Some(_), Origin::LatestAlias | Origin::PinnedAlias) => OF_AWS_HOLDS,
            };
            if age(read, now) < holds {
                return Ok(value);
            }
        }
        let name = Some(parameter.name.clone());
        let request = GetParameterRequest { name, with_decryption: Some(true) };
        let value = match aws.get_parameter(&request).await {
            Ok(response) => response.parameter.and_then(|parameter| parameter.value),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        self.lock().insert(parameter.name.clone(), (now, value.clone()));
        Ok(value)
    }

    /// Parameters of the newest release that name deprecated images are asked for again before their time.
    fn forget_deprecated(&self, plan: &ImagePlan, amis: &[Ami], now: Timestamp) {
        let mut all = self.lock();
        for parameter in plan.parameters().iter().filter(|one| one.origin == Origin::LatestAlias) {
            let is_old = all.get(&parameter.name).is_some_and(|(read, value)| {
                let names = |ami: &Ami| ami.deprecated && Some(&ami.id) == value.as_ref();
                amis.iter().any(names) && age(*read, now) >= DEPRECATED_HOLDS
            });
            if is_old {
                all.remove(&parameter.name);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Timestamp, Option<String>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn age(read: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(read)).unwrap_or_default()
}

impl Look<'_> {
    /// A parameter that cannot be read now fails all: without its image, nodes of some types would seem to have none.
    pub(super) async fn images(&self, parameters: &Parameters) -> Result<FoundImages, Obstacle> {
        let holds = self.cloud.options().ami_refresh_interval;
        if let Some(known) = self.memory.images.get(self.now, holds) {
            return Ok(known);
        }
        let version = self.cloud.kubernetes_version();
        let plan = ImagePlan::new(&self.class.spec, &version).map_err(|unsupported| {
            let kubernetes = version.to_string();
            let error = unsupported.to_string();
            let alias = self.class.spec.alias().cloned();
            let unreadable =
                NotReady::Unreadable { field: "spec.amiSelectorTerms".to_owned(), error };
            alias.map_or(unreadable, |alias| NotReady::UnsupportedAlias { alias, kubernetes })
        })?;
        let mut values = BTreeMap::new();
        for parameter in plan.parameters() {
            let value = parameters.get(self.aws(), parameter, self.now).await;
            if let Some(value) = value.map_err(Obstacle::of_images)? {
                values.insert(parameter.name.clone(), value);
            }
        }
        let resolved = plan.resolve(&values);
        let mut found = Vec::new();
        for query in &resolved.queries {
            let images = all_pages(self.aws(), query.request()).await;
            let images = images.map_err(Obstacle::of_images)?;
            found.extend(images.into_iter().map(|image| (query, image)));
        }
        let amis = images::choose(found.iter().map(|(query, image)| (*query, image)), self.now);
        parameters.forget_deprecated(&plan, &amis, self.now);
        if amis.is_empty() {
            return Err(NotReady::AmiNotFound.into());
        }
        let published = images::published(found.iter().map(|(_, image)| image));
        let found = FoundImages { amis, published, skipped: resolved.skipped };
        self.memory.images.keep(self.now, &found);
        Ok(found)
    }
}
