//! The launch templates that EC2 is known to have.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use kerf_aws_client::{Aws, AwsError, all_pages};
use kerf_aws_model::{errors::Meaning, launch_template::LaunchTemplate};
use kerf_aws_wire::ec2::{self, DescribeLaunchTemplatesRequest, Filter};
use kerf_provider::BoxError;
use kerf_runtime::Fence;
use tracing::debug;

/// EC2 takes so many values for one filter.
const VALUES_OF_A_FILTER: usize = 200;

/// Names of templates and when each was last used. A name says what is in the template, so that one that exists is right.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    used: Mutex<BTreeMap<String, Timestamp>>,
    /// Held while templates are made: hundreds of launches that need the same one ask for it once.
    making: tokio::sync::Mutex<()>,
}

impl Templates {
    /// Makes those that EC2 has not got.
    pub(crate) async fn ensure(
        &self,
        aws: &dyn Aws,
        templates: &[LaunchTemplate],
        now: Timestamp,
    ) -> Result<(), AwsError> {
        if self.missing(templates, now).is_empty() {
            return Ok(());
        }
        let _making = self.making.lock().await;
        let missing = self.missing(templates, now);
        for some in missing.chunks(VALUES_OF_A_FILTER) {
            for name in find(aws, some).await? {
                self.used().insert(name, now);
            }
        }
        for template in self.missing(templates, now) {
            match aws.create_launch_template(&template.create_request()).await {
                Ok(_) => {}
                // Another process was faster, or an answer was lost.
                Err(error) if error.meaning() == Meaning::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            self.used().insert(template.name.clone(), now);
        }
        Ok(())
    }

    /// EC2 said that one of them is gone.
    pub(crate) fn forget(&self, templates: &[LaunchTemplate]) {
        let mut used = self.used();
        for template in templates {
            used.remove(&template.name);
        }
    }

    /// When a launch of this process last used it.
    pub(crate) fn last_used(&self, name: &str) -> Option<Timestamp> {
        self.used().get(name).copied()
    }

    /// Deletes a template; a launch that needs it makes it anew. Success if there is none.
    pub(crate) async fn delete(
        &self,
        aws: &dyn Aws,
        fence: &Fence,
        template: &ec2::LaunchTemplate,
    ) -> Result<(), BoxError> {
        let name = template.launch_template_name.clone().unwrap_or_default();
        self.used().remove(&name);
        fence.check()?;
        let request = ec2::DeleteLaunchTemplateRequest {
            launch_template_name: Some(name.clone()),
            ..Default::default()
        };
        match aws.delete_launch_template(&request).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => {
                debug!(template = name, "deleted launch template");
                Ok(())
            }
        }
    }

    /// Those that are not known to exist; the others are in use.
    fn missing<'a>(
        &self,
        templates: &'a [LaunchTemplate],
        now: Timestamp,
    ) -> Vec<&'a LaunchTemplate> {
        let mut used = self.used();
        let mut is_missing = |template: &&LaunchTemplate| match used.get_mut(&template.name) {
            Some(last) => {
                *last = now;
                false
            }
            None => true,
        };
        templates.iter().filter(|template| is_missing(template)).collect()
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of them exist. By a filter, because EC2 refuses a list of names as a whole if one of them is unknown.
async fn find(aws: &dyn Aws, templates: &[&LaunchTemplate]) -> Result<Vec<String>, AwsError> {
    let names = templates.iter().map(|template| template.name.clone()).collect();
    let filter = Filter { name: Some("launch-template-name".to_owned()), values: names };
    let request = DescribeLaunchTemplatesRequest { filters: vec![filter], ..Default::default() };
    let found = all_pages(aws, request).await?;
    Ok(found.into_iter().filter_map(|template| template.launch_template_name).collect())
}
