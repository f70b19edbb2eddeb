//! Images for nodes of EKS, and the SSM parameters that name them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kerf_aws_wire::{ec2, ssm};

use crate::chance;
use crate::cloud::{Answer, Cloud};
use crate::filters::{Tags, one, select, tag_list};
use crate::network::known;
use crate::paging::{PageSize, page};
use crate::refused::Refused;
use crate::settings::Settings;

#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) id: String,
    pub(crate) name: String,
    /// `x86_64` or `arm64`
    pub(crate) architecture: &'static str,
    /// `amazon`, or the number of an account.
    pub(crate) owner: String,
    pub(crate) windows: bool,
    pub(crate) created: Timestamp,
    pub(crate) deprecated: Timestamp,
    pub(crate) tags: Tags,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Images {
    pub(crate) by_id: BTreeMap<String, Image>,
    /// By name: the value and how often it was written.
    pub(crate) parameters: BTreeMap<String, (String, i64)>,
}

/// Images of one publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release<'a> {
    /// With its date: `v20261101`
    Al2023(&'a str),
    Al2(&'a str),
    /// With its version: `1.46.0`
    Bottlerocket(&'a str),
    /// With its date: `2026.11.12`
    Windows(&'a str),
}

/// Kubernetes minor versions that there are images for. Those of AL2 end with 1.32.
const VERSIONS: [u32; 8] = [29, 30, 31, 32, 33, 34, 35, 36];
const LAST_OF_AL2: u32 = 32;

/// The account of AWS that owns the images.
const AMAZON: &str = "602401143452";

/// AWS deprecates its images two years after it made them.
const LIFE: SignedDuration = SignedDuration::from_hours(2 * 365 * 24);

impl Images {
    /// Two releases of each family: one of a month ago and one of yesterday.
    pub(crate) fn new(settings: &Settings, now: Timestamp) -> Self {
        let mut images = Self::default();
        let day = SignedDuration::from_hours(24);
        for (created, release) in [
            (now - day * 30, Release::Al2023("v20261001")),
            (now - day * 30, Release::Al2("20261001")),
            (now - day * 30, Release::Bottlerocket("1.45.0")),
            (now - day * 30, Release::Windows("2026.10.15")),
            (now - day, Release::Al2023("v20261101")),
            (now - day, Release::Al2("20261101")),
            (now - day, Release::Bottlerocket("1.46.0")),
            (now - day, Release::Windows("2026.11.12")),
        ] {
            images.publish(settings, release, created);
        }
        images
    }

    /// Makes the images of a release and lets the parameters for the newest one name them.
    pub(crate) fn publish(&mut self, settings: &Settings, release: Release<'_>, now: Timestamp) {
        for minor in VERSIONS {
            let version = format!("1.{minor}");
            match release {
                Release::Al2023(release) => self.publish_al2023(settings, &version, release, now),
                Release::Al2(release) if minor <= LAST_OF_AL2 => {
                    for (infix, directory, architecture) in
                        [("", "", X86), ("-arm64", "-arm64", ARM), ("-gpu", "-gpu", X86)]
                    {
                        let name = format!("amazon-eks{infix}-node-{version}-v{release}");
                        let id = self.add(settings, &name, architecture, false, now);
                        let under = format!(
                            "/aws/service/eks/optimized-ami/{version}/amazon-linux-2{directory}"
                        );
                        self.set(format!("{under}/recommended/image_id"), &id);
                        self.set(format!("{under}/{name}/image_id"), &id);
                    }
                }
                Release::Al2(_) => {}
                Release::Bottlerocket(release) => {
                    for (variant, architecture) in
                        [("", X86), ("", ARM), ("-nvidia", X86), ("-nvidia", ARM)]
                    {
                        let kind = format!("aws-k8s-{version}{variant}");
                        let name =
                            format!("bottlerocket-{kind}-{architecture}-v{release}-431fe75a");
                        let id = self.add(settings, &name, architecture, false, now);
                        let under = format!("/aws/service/bottlerocket/{kind}/{architecture}");
                        self.set(format!("{under}/latest/image_id"), &id);
                        self.set(format!("{under}/{release}/image_id"), &id);
                    }
                }
                Release::Windows(release) => {
                    for year in ["2019", "2022", "2025"] {
                        let kind =
                            format!("Windows_Server-{year}-English-Core-EKS_Optimized-{version}");
                        let id = self.add(settings, &format!("{kind}-{release}"), X86, true, now);
                        self.set(format!("/aws/service/ami-windows-latest/{kind}/image_id"), &id);
                    }
                }
            }
        }
    }

    fn publish_al2023(
        &mut self,
        settings: &Settings,
        version: &str,
        release: &str,
        now: Timestamp,
    ) {
        for (architecture, variant) in [
            (X86, "standard"),
            (X86, "nvidia"),
            (X86, "neuron"),
            (ARM, "standard"),
            (ARM, "nvidia"),
        ] {
            let name =
                format!("amazon-eks-node-al2023-{architecture}-{variant}-{version}-{release}");
            let id = self.add(settings, &name, architecture, false, now);
            let under = format!(
                "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{architecture}/{variant}"
            );
            self.set(format!("{under}/recommended/image_id"), &id);
            self.set(format!("{under}/{name}/image_id"), &id);
        }
    }

    fn add(
        &mut self,
        settings: &Settings,
        name: &str,
        architecture: &'static str,
        windows: bool,
        created: Timestamp,
    ) -> String {
        let id = chance::id("ami", settings.seed, &[name]);
        let image = Image {
            id: id.clone(),
            name: name.to_owned(),
            architecture,
            owner: AMAZON.to_owned(),
            windows,
            created,
            deprecated: created.checked_add(LIFE).unwrap_or(Timestamp::MAX),
            tags: Tags::new(),
        };
        self.by_id.insert(id.clone(), image);
        id
    }

    fn set(&mut self, name: String, value: &str) {
        let parameter = self.parameters.entry(name).or_default();
        *parameter = (value.to_owned(), parameter.1 + 1);
    }

    /// An image of the account's own.
    pub(crate) fn add_own(
        &mut self,
        settings: &Settings,
        name: &str,
        architecture: &'static str,
        tags: Tags,
        now: Timestamp,
    ) -> String {
        let id = self.add(settings, name, architecture, false, now);
        if let Some(image) = self.by_id.get_mut(&id) {
            image.owner.clone_from(&settings.account);
            image.tags = tags;
        }
        id
    }
}

pub(crate) const X86: &str = "x86_64";
pub(crate) const ARM: &str = "arm64";
const PAGE: PageSize = PageSize::new(1, 1000, 1000);

impl Answer for ec2::DescribeImagesRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let (images, account, now) = (&cloud.images, &cloud.settings.account, cloud.now);
        known(&self.image_ids, &images.by_id, "InvalidAMIID.NotFound", "image id")?;
        let found = select(
            images.by_id.values(),
            &self.filters,
            |image| &image.tags,
            |image, name| match name {
                "image-id" => one(&image.id),
                "name" => one(&image.name),
                "state" => one("available"),
                "architecture" => one(image.architecture),
                "owner-id" => one(&image.owner),
                "platform" => {
                    Some(image.windows.then(|| "windows".to_owned()).into_iter().collect())
                }
                _ => None,
            },
        )?;
        let owned = |image: &Image| {
            self.owners.is_empty()
                || self.owners.iter().any(|owner| match owner.as_str() {
                    "self" => image.owner == *account,
                    "amazon" => image.owner == AMAZON,
                    number => image.owner == number,
                })
        };
        // Whoever owns an image sees it, deprecated or not.
        let shown = |image: &Image| {
            self.include_deprecated == Some(true)
                || image.owner == *account
                || image.deprecated > now
        };
        let wanted = |image: &&Image| {
            (self.image_ids.is_empty() || self.image_ids.contains(&image.id))
                && owned(image)
                && shown(image)
        };
        let describe = |image: &Image| ec2::Image {
            architecture: Some(image.architecture.to_owned()),
            creation_date: Some(millis(image.created)),
            deprecation_time: Some(millis(image.deprecated)),
            image_id: Some(image.id.clone()),
            name: Some(image.name.clone()),
            owner_id: Some(image.owner.clone()),
            platform: image.windows.then(|| "windows".to_owned()),
            platform_details: Some(if image.windows { "Windows" } else { "Linux/UNIX" }.to_owned()),
            public: Some(image.owner == AMAZON),
            state: Some("available".to_owned()),
            tags: tag_list(&image.tags),
        };
        let images: Vec<_> = found.into_iter().filter(wanted).map(describe).collect();
        let (images, next_token) = page(
            images,
            |image| image.image_id.clone().unwrap_or_default(),
            &PAGE,
            self.max_results,
            self.next_token.as_deref(),
        )?;
        Ok(ec2::DescribeImagesResponse { images, next_token })
    }
}

/// `2026-11-16T19:00:00.000Z`
fn millis(time: Timestamp) -> String {
    format!("{time:.3}")
}

impl Answer for ssm::GetParameterRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let name = self.name.as_deref().unwrap_or_default();
        let Some((value, version)) = cloud.images.parameters.get(name) else {
            return Err(Refused::new("ParameterNotFound", format!("Parameter {name} not found.")));
        };
        let region = &cloud.settings.region;
        let parameter = ssm::Parameter {
            arn: Some(format!("arn:aws:ssm:{region}::parameter{name}")),
            last_modified_date: None,
            name: Some(name.to_owned()),
            r#type: Some("String".to_owned()),
            value: Some(value.clone()),
            version: Some(*version),
        };
        Ok(ssm::GetParameterResponse { parameter: Some(parameter) })
    }
}
