//! User data: what an instance reads when it starts, so that it becomes a node of the cluster.
//!
//! | file | form | image families |
//! |---|---|---|
//! | `nodeadm` | MIME with a `NodeConfig` | AL2023 |
//! | `bootstrap_script` | MIME with a call of `bootstrap.sh`; PowerShell with a call of `Start-EKSBootstrap.ps1` | AL2; Windows |
//! | `bottlerocket` | TOML | Bottlerocket |
//!
//! Each form is written and read. What is read are the settings that a kubelet would come up with: the fake of AWS starts its
//! nodes from them, so that a mistake in what is written fails a test.

mod bootstrap_script;
mod bottlerocket;
mod kubelet_args;
mod mime;
mod nodeadm;
mod yaml;

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Taint;
use kerf_api::{NodeClaim, labels, taints};
use kerf_aws_api::{
    AliasVersion, AmiFamily, Ec2NodeClass, InstanceStorePolicy, KubeletConfiguration,
};

/// EC2 takes no more, counted before base64.
pub const MAX_BYTES: usize = 16_384;

/// From here on a warning is due: 90 % of the limit.
const NEAR_LIMIT: usize = MAX_BYTES / 10 * 9;

/// What an instance needs to know to become a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSettings {
    pub cluster: ClusterAccess,
    /// The class's own, with what the instance type decides filled in.
    pub kubelet: KubeletConfiguration,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub instance_store_policy: Option<InstanceStorePolicy>,
}

/// How the cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterAccess {
    pub name: String,
    pub endpoint: String,
    /// Certificates in PEM, in base64.
    pub ca_bundle: Option<String>,
    /// The range of addresses of Services; only AL2023 needs it.
    pub service_cidr: Option<String>,
}

/// Why there is no user data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the user data has {bytes} bytes, and EC2 takes {MAX_BYTES}; shorten spec.userData")]
    TooLarge { bytes: usize },
    #[error("the range of addresses of Services (service CIDR) of the cluster is not known yet")]
    NoServiceCidr,
    #[error("the CA bundle of the cluster is not base64")]
    CaBundle,
    #[error("spec.userData cannot be taken apart: {0}")]
    Mime(#[from] MimeError),
    #[error("spec.userData is not TOML: {0}")]
    Toml(String),
    #[error("{0} in spec.userData is not a table")]
    NotATable(&'static str),
}

/// Why a MIME archive cannot be taken apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MimeError {
    #[error("it has no header Content-Type")]
    NoContentType,
    #[error("its content type is {0} and not multipart")]
    NotMultipart(String),
    #[error("its content type names no boundary")]
    NoBoundary,
    #[error("{0:?} is not a header")]
    Header(String),
    #[error("its last part does not end with the boundary")]
    Unterminated,
}

/// Why a node could not start from its user data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("it has none of the known forms")]
    UnknownForm,
    #[error(transparent)]
    Mime(#[from] MimeError),
    #[error("its NodeConfig: {0}")]
    NodeConfig(String),
    #[error("its settings: {0}")]
    Settings(String),
    #[error("the kubelet's argument {0:?}")]
    KubeletArgument(String),
}

/// The form of user data, by the family of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Nodeadm,
    BootstrapScript,
    Bottlerocket(BindPaths),
    PowerShell,
    /// As the user wrote it.
    Verbatim,
}

/// Which directories Bottlerocket puts on the disks of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindPaths {
    /// The release knows them, from 1.46.0 on.
    Default,
    Explicit,
}

impl Form {
    pub fn of(class: &Ec2NodeClass) -> Self {
        match class.spec.ami_family() {
            AmiFamily::Al2023 => Self::Nodeadm,
            AmiFamily::Al2 => Self::BootstrapScript,
            AmiFamily::Bottlerocket => Self::Bottlerocket(BindPaths::of(class)),
            AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
                Self::PowerShell
            }
            AmiFamily::Custom => Self::Verbatim,
        }
    }
}

impl BindPaths {
    /// The release is that of the alias, else that in the name of an image: of the terms first, then of those that were found.
    fn of(class: &Ec2NodeClass) -> Self {
        let of_terms =
            || class.spec.ami_selector_terms.iter().filter_map(|term| term.name.as_deref());
        let found = class.status.iter().flat_map(|status| &status.amis);
        let of_images = found
            .filter_map(|ami| ami.name.as_deref().filter(|name| name.contains("bottlerocket")));
        let release = match class.spec.alias().map(kerf_aws_api::Alias::version) {
            Some(AliasVersion::Latest) => return Self::Default,
            Some(AliasVersion::Pinned(release)) => Some(release.as_str()),
            None => of_terms().chain(of_images).find_map(release_in_name),
        };
        if release.is_some_and(binds_by_default) { Self::Default } else { Self::Explicit }
    }
}

/// `v1.46.0` of `bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a`.
fn release_in_name(name: &str) -> Option<&str> {
    name.split('-').find(|part| part.starts_with('v') && part.contains('.'))
}

fn binds_by_default(release: &str) -> bool {
    let mut numbers = release.trim_start_matches('v').split('.');
    let mut next = || numbers.next();
    let (Some(major), Some(minor), Some(_)) = (next(), next(), next()) else { return false };
    match (major.parse::<u32>(), minor.parse::<u32>()) {
        (Ok(major), Ok(minor)) => (major, minor) >= (1, 46),
        _ => false,
    }
}

/// As much of what a user wrote as a sentence has room for. A condition takes 32 kB, and one that is longer is never written.
fn quoted(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// User data that EC2 takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserData {
    text: String,
    /// Keys of the user's that the form has no place for.
    ignored: Vec<String>,
}

impl UserData {
    /// The settings in this form, merged with what the user wrote.
    pub fn render(
        form: Form,
        settings: &NodeSettings,
        custom: Option<&str>,
    ) -> Result<Self, Refusal> {
        let custom = custom.unwrap_or_default();
        let mut ignored = Vec::new();
        let text = match form {
            Form::Nodeadm => nodeadm::render(settings, custom)?,
            Form::BootstrapScript => bootstrap_script::render(settings, custom)?,
            Form::PowerShell => bootstrap_script::render_powershell(settings, custom),
            Form::Bottlerocket(paths) => {
                bottlerocket::render(settings, custom, paths, &mut ignored)?
            }
            Form::Verbatim => custom.to_owned(),
        };
        match text.len() {
            bytes if bytes > MAX_BYTES => Err(Refusal::TooLarge { bytes }),
            _ => Ok(Self { text, ignored }),
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// As EC2 wants it.
    pub fn base64(&self) -> String {
        BASE64_STANDARD.encode(&self.text)
    }

    /// Close enough to the limit for a warning.
    pub fn is_near_limit(&self) -> bool {
        self.text.len() >= NEAR_LIMIT
    }

    /// Keys that the user wrote and that are left out, because they are not known to be settings.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }
}

impl NodeSettings {
    /// What the nodes of a claim read, if they have this capacity type and room for so many pods.
    pub fn of_claim(
        class: &Ec2NodeClass,
        claim: &NodeClaim,
        cluster: &ClusterAccess,
        dns: Option<&str>,
        capacity_type: &str,
        max_pods: i32,
    ) -> Self {
        let mut kubelet = class.spec.kubelet.clone().unwrap_or_default();
        kubelet.max_pods.get_or_insert(max_pods);
        if kubelet.cluster_dns.as_ref().is_none_or(Vec::is_empty) {
            kubelet.cluster_dns = dns.map(|dns| vec![dns.to_owned()]);
        }
        Self {
            cluster: cluster.clone(),
            kubelet,
            labels: labels_of(claim, class.spec.ami_family(), capacity_type),
            taints: taints_of(claim),
            instance_store_policy: class.spec.instance_store_policy,
        }
    }

    /// The settings that a node would come up with, whatever the form.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        if mime::is_archive(text) {
            let parts = mime::read(text)?;
            if let Some(settings) = nodeadm::read(&parts)? {
                return Ok(settings);
            }
            let scripts: Vec<_> = parts.iter().map(|part| part.content.as_str()).collect();
            return bootstrap_script::read(&scripts)?.ok_or(Unreadable::UnknownForm);
        }
        if let Some(settings) = bootstrap_script::read(&[text])? {
            return Ok(settings);
        }
        bottlerocket::read(text)
    }
}

/// The labels that a kubelet gives its node: the claim's, without those that the admission plugin `NodeRestriction` would refuse.
fn labels_of(
    claim: &NodeClaim,
    family: AmiFamily,
    capacity_type: &str,
) -> BTreeMap<String, String> {
    let mut all = claim.metadata.labels.clone().unwrap_or_default();
    all.insert(labels::CAPACITY_TYPE.to_owned(), capacity_type.to_owned());
    // The kubelet comes with all taints. Taints that are missing when it registers were removed, and are not put back.
    if family != AmiFamily::Custom {
        all.insert(labels::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
    }
    all.retain(|label, _| !is_forbidden(labels::domain(label)));
    all
}

fn is_forbidden(domain: &str) -> bool {
    ["kubernetes.io", "k8s.io", "node-restriction.kubernetes.io"].iter().any(|forbidden| {
        domain.strip_suffix(forbidden).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn taints_of(claim: &NodeClaim) -> Vec<Taint> {
    let own = [&claim.spec.taints, &claim.spec.startup_taints];
    let mut all: Vec<_> = own.into_iter().flatten().flatten().cloned().collect();
    let unregistered = taints::unregistered();
    if !all.iter().any(|taint| taints::same(taint, &unregistered)) {
        all.push(unregistered);
    }
    all
}

#[cfg(test)]
mod tests;
