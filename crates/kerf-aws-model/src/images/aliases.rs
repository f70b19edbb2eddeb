//! The images that AWS makes for EKS, by the names of the SSM parameters that hold their ids.

use kerf_aws_api::{Alias, AliasVersion, AmiFamily, labels};
use kerf_model::{
    Requirement, Requirements,
    labels::{OS, WINDOWS_BUILD},
};

/// Why an alias cannot be used in this cluster, whatever is tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedAlias {
    #[error(
        "{alias}: AWS makes no AL2 images for Kubernetes 1.33 and later, and the cluster has {version}"
    )]
    Al2 { alias: String, version: String },
    #[error(
        "{alias}: AWS makes Windows Server 2025 images for Kubernetes 1.35 and later, and the cluster has {version}"
    )]
    Windows2025 { alias: String, version: String },
}

/// The machines that an image is for.
#[derive(Clone, Copy)]
enum Variant {
    Standard,
    Nvidia,
    Neuron,
    Windows(&'static str),
}

impl Variant {
    fn requirements(self) -> Requirements {
        Requirements::new(match self {
            Self::Standard => vec![
                Requirement::does_not_exist(labels::INSTANCE_ACCELERATOR_COUNT),
                Requirement::does_not_exist(labels::INSTANCE_GPU_COUNT),
            ],
            Self::Nvidia => vec![Requirement::exists(labels::INSTANCE_GPU_COUNT)],
            Self::Neuron => vec![Requirement::exists(labels::INSTANCE_ACCELERATOR_COUNT)],
            Self::Windows(build) => vec![
                Requirement::is_in(OS, ["windows"]),
                Requirement::is_in(WINDOWS_BUILD, [build]),
            ],
        })
    }
}

/// The parameters of an alias in a cluster of this version (`1.33`), with the machines that their images are for.
pub(super) fn parameters(
    alias: &Alias,
    version: &str,
) -> Result<Vec<(String, Vec<Requirements>)>, UnsupportedAlias> {
    check(alias, version)?;
    let pinned = match alias.version() {
        AliasVersion::Latest => None,
        AliasVersion::Pinned(release) => Some(release.as_str()),
    };
    let of_family = match alias.family() {
        AmiFamily::Al2023 => al2023(version, pinned),
        AmiFamily::Al2 => al2(version, pinned),
        AmiFamily::Bottlerocket => bottlerocket(version, pinned),
        windows => windows_server(windows, version),
    };
    let requirements = |variants: Vec<Variant>| {
        variants.into_iter().map(Variant::requirements).collect::<Vec<_>>()
    };
    Ok(of_family.into_iter().map(|(name, variants)| (name, requirements(variants))).collect())
}

fn check(alias: &Alias, version: &str) -> Result<(), UnsupportedAlias> {
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let (alias_text, version) = (alias.to_string(), version.to_owned());
    match (alias.family(), minor) {
        (AmiFamily::Al2, Some(33..)) => Err(UnsupportedAlias::Al2 { alias: alias_text, version }),
        (AmiFamily::Windows2025, Some(..35)) => {
            Err(UnsupportedAlias::Windows2025 { alias: alias_text, version })
        }
        _ => Ok(()),
    }
}

type Named = Vec<(String, Vec<Variant>)>;

fn al2023(version: &str, pinned: Option<&str>) -> Named {
    let machines = [
        ("x86_64", "standard", Variant::Standard),
        ("x86_64", "nvidia", Variant::Nvidia),
        ("x86_64", "neuron", Variant::Neuron),
        ("arm64", "standard", Variant::Standard),
        ("arm64", "nvidia", Variant::Nvidia),
    ];
    let name = |(architecture, kind, variant)| {
        let image = pinned.map_or_else(
            || "recommended".to_owned(),
            |release| format!("amazon-eks-node-al2023-{architecture}-{kind}-{version}-{release}"),
        );
        let path = format!(
            "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{architecture}/{kind}/{image}/image_id"
        );
        (path, vec![variant])
    };
    machines.map(name).into()
}

fn al2(version: &str, pinned: Option<&str>) -> Named {
    let name = |suffix: &str, variants| {
        let image = pinned.map_or_else(
            || "recommended".to_owned(),
            |release| format!("amazon-eks{suffix}-node-{version}-{release}"),
        );
        let path = format!(
            "/aws/service/eks/optimized-ami/{version}/amazon-linux-2{suffix}/{image}/image_id"
        );
        (path, variants)
    };
    vec![
        name("", vec![Variant::Standard]),
        name("-arm64", vec![Variant::Standard]),
        name("-gpu", vec![Variant::Neuron, Variant::Nvidia]),
    ]
}

fn bottlerocket(version: &str, pinned: Option<&str>) -> Named {
    // The releases have a `v` on GitHub and none here.
    let release = pinned.map_or("latest", |release| release.trim_start_matches('v'));
    let name = |kind: &str, architecture: &str, variants| {
        let path = format!(
            "/aws/service/bottlerocket/aws-k8s-{version}{kind}/{architecture}/{release}/image_id"
        );
        (path, variants)
    };
    vec![
        name("", "x86_64", vec![Variant::Standard, Variant::Neuron]),
        name("", "arm64", vec![Variant::Standard]),
        name("-nvidia", "x86_64", vec![Variant::Nvidia]),
        name("-nvidia", "arm64", vec![Variant::Nvidia]),
    ]
}

fn windows_server(family: AmiFamily, version: &str) -> Named {
    let year = family.as_str().trim_start_matches("Windows");
    let path = format!(
        "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{version}/image_id"
    );
    family.windows_build().map(|build| (path, vec![Variant::Windows(build)])).into_iter().collect()
}
