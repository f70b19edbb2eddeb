//! Launch templates. Each has one version.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use kerf_aws_model::user_data::MAX_BYTES;
use kerf_aws_wire::ec2;

use crate::chance;
use crate::cloud::{Answer, Cloud};
use crate::filters::{Tags, one, select, tag_list, tags_of};
use crate::paging::{PageSize, page};
use crate::refused::Refused;

#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) created: Timestamp,
    pub(crate) tags: Tags,
    pub(crate) data: Arc<ec2::RequestLaunchTemplateData>,
}

/// By name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Templates {
    pub(crate) by_name: BTreeMap<String, Arc<Template>>,
    made: u64,
}

/// Which template a request means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named<'a> {
    Name(&'a str),
    Id(&'a str),
}

impl<'a> Named<'a> {
    pub(crate) fn new(name: Option<&'a str>, id: Option<&'a str>) -> Result<Self, Refused> {
        match (name, id) {
            (Some(name), None) => Ok(Self::Name(name)),
            (None, Some(id)) => Ok(Self::Id(id)),
            _ => {
                let message = "Either the launch template ID or the launch template name must be specified, but not both.";
                Err(Refused::new("MissingParameter", message))
            }
        }
    }
}

impl Templates {
    pub(crate) fn get(&self, named: Named<'_>) -> Result<&Arc<Template>, Refused> {
        match named {
            Named::Name(name) => self.by_name.get(name).ok_or_else(|| {
                Refused::new(
                    "InvalidLaunchTemplateName.NotFoundException",
                    format!(
                        "The specified launch template, with template name {name}, does not exist."
                    ),
                )
            }),
            Named::Id(id) => {
                self.by_name.values().find(|template| template.id == id).ok_or_else(|| {
                    Refused::new(
                        "InvalidLaunchTemplateId.NotFound",
                        format!(
                            "The specified launch template, with template ID {id}, does not exist."
                        ),
                    )
                })
            }
        }
    }
}

fn describe(template: &Template) -> ec2::LaunchTemplate {
    ec2::LaunchTemplate {
        create_time: Some(template.created),
        default_version_number: Some(1),
        latest_version_number: Some(1),
        launch_template_id: Some(template.id.clone()),
        launch_template_name: Some(template.name.clone()),
        tags: tag_list(&template.tags),
    }
}

fn check_user_data(text: &str) -> Result<(), Refused> {
    let malformed = |message: &str| Err(Refused::new("InvalidUserData.Malformed", message));
    match BASE64_STANDARD.decode(text) {
        Err(_) => malformed("Invalid BASE64 encoding of user data."),
        Ok(bytes) if bytes.len() > MAX_BYTES => {
            malformed(&format!("User data is limited to {MAX_BYTES} bytes"))
        }
        Ok(_) => Ok(()),
    }
}

impl Answer for ec2::CreateLaunchTemplateRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn check(&self, cloud: &Cloud) -> Result<(), Refused> {
        let name = self.launch_template_name.as_deref().unwrap_or_default();
        let legal =
            |character: char| character.is_ascii_alphanumeric() || "().-/_".contains(character);
        if !(3..=128).contains(&name.len()) || !name.chars().all(legal) {
            let message = "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.";
            return Err(Refused::new("InvalidLaunchTemplateName.MalformedException", message));
        }
        if cloud.templates.by_name.contains_key(name) {
            let message = "Launch template name already in use.";
            return Err(Refused::new("InvalidLaunchTemplateName.AlreadyExistsException", message));
        }
        let data = self.launch_template_data.as_ref();
        let data = data.ok_or_else(|| Refused::missing("LaunchTemplateData"))?;
        if let Some(text) = &data.user_data {
            check_user_data(text)?;
        }
        let quota = cloud.settings.quotas.launch_templates;
        if cloud.templates.by_name.len() >= quota {
            let message = format!("You have reached the limit of {quota} launch templates.");
            return Err(Refused::new("LaunchTemplateLimitExceeded", message));
        }
        Ok(())
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let name = self.launch_template_name.clone().unwrap_or_default();
        cloud.templates.made += 1;
        let number = cloud.templates.made.to_string();
        let own = self.tag_specifications.iter();
        let own = own.filter(|one| one.resource_type.as_deref() == Some("launch-template"));
        let template = Template {
            id: chance::id("lt", cloud.settings.seed, &[&name, &number]),
            name: name.clone(),
            created: cloud.now,
            tags: own.flat_map(|one| tags_of(&one.tags)).collect(),
            data: Arc::new(self.launch_template_data.clone().unwrap_or_default()),
        };
        let launch_template = Some(describe(&template));
        cloud.templates.by_name.insert(name, Arc::new(template));
        Ok(ec2::CreateLaunchTemplateResponse { launch_template })
    }
}

impl Answer for ec2::DeleteLaunchTemplateRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let named =
            Named::new(self.launch_template_name.as_deref(), self.launch_template_id.as_deref())?;
        let template = Arc::clone(cloud.templates.get(named)?);
        cloud.templates.by_name.remove(&template.name);
        Ok(ec2::DeleteLaunchTemplateResponse { launch_template: Some(describe(&template)) })
    }
}

const PAGE: PageSize = PageSize::new(1, 200, 200);

impl Answer for ec2::DescribeLaunchTemplatesRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        for name in &self.launch_template_names {
            cloud.templates.get(Named::Name(name))?;
        }
        for id in &self.launch_template_ids {
            cloud.templates.get(Named::Id(id))?;
        }
        let all = cloud.templates.by_name.values().map(|template| &**template);
        let found = select(
            all,
            &self.filters,
            |template| &template.tags,
            |template, name| match name {
                "launch-template-name" => one(&template.name),
                "create-time" => one(template.created.to_string()),
                _ => None,
            },
        )?;
        let wanted = |template: &&Template| {
            (self.launch_template_names.is_empty()
                || self.launch_template_names.contains(&template.name))
                && (self.launch_template_ids.is_empty()
                    || self.launch_template_ids.contains(&template.id))
        };
        let (found, next_token) = page(
            found.into_iter().filter(wanted).collect(),
            |template| template.name.clone(),
            &PAGE,
            self.max_results,
            self.next_token.as_deref(),
        )?;
        let launch_templates = found.into_iter().map(describe).collect();
        Ok(ec2::DescribeLaunchTemplatesResponse { launch_templates, next_token })
    }
}
