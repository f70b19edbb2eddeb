//! AL2 and Windows: a call of the script that the image has for joining a cluster of EKS.

use kerf_aws_api::InstanceStorePolicy;

use super::{
    NodeSettings, Refusal, Unreadable, kubelet_args,
    mime::{self, Part},
};

const BOOTSTRAP: &str = "/etc/eks/bootstrap.sh";
/// How the user data calls the script of Windows.
const POWERSHELL_CALL: &str = "& $EKSBootstrapScriptFile";

pub(super) fn render(settings: &NodeSettings, custom: &str) -> Result<String, Refusal> {
    let mut parts = match custom {
        "" => Vec::new(),
        archive if mime::is_archive(archive) => mime::read(archive)?,
        script => vec![Part::new(mime::SHELL_SCRIPT, script)],
    };
    parts.push(Part::new(mime::SHELL_SCRIPT, script(settings)));
    Ok(mime::write(&parts))
}

/// `bootstrap.sh` takes its arguments without an equals sign only.
fn script(settings: &NodeSettings) -> String {
    let NodeSettings { cluster, kubelet, .. } = settings;
    let ca_bundle = cluster.ca_bundle.as_ref();
    let mut lines = vec![format!(
        "{BOOTSTRAP} '{}' --apiserver-endpoint '{}' {}",
        cluster.name,
        cluster.endpoint,
        ca_bundle.map(|bundle| format!("--b64-cluster-ca '{bundle}'")).unwrap_or_default(),
    )];
    let dns = kubelet.cluster_dns.as_ref().and_then(|all| all.first());
    if dns.is_some_and(|dns| dns.contains(':')) {
        lines.push("--ip-family ipv6".to_owned());
    }
    lines.extend(dns.map(|dns| format!("--dns-cluster-ip '{dns}'")));
    if kubelet.max_pods.is_some() {
        lines.push("--use-max-pods false".to_owned());
    }
    lines.push(format!("--kubelet-extra-args '{}'", kubelet_args::render(settings)));
    if settings.instance_store_policy == Some(InstanceStorePolicy::Raid0) {
        lines.push("--local-disks raid0".to_owned());
    }
    format!(
        "#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n{}",
        lines.join(" \\\n"),
    )
}

pub(super) fn render_powershell(settings: &NodeSettings, custom: &str) -> String {
    let NodeSettings { cluster, kubelet, .. } = settings;
    let mut call = vec![format!(
        "{POWERSHELL_CALL} -EKSClusterName '{}' -APIServerEndpoint '{}'",
        cluster.name, cluster.endpoint
    )];
    let ca_bundle = cluster.ca_bundle.as_ref();
    call.extend(ca_bundle.map(|bundle| format!("-Base64ClusterCA '{bundle}'")));
    call.push(format!("-KubeletExtraArgs '{}'", kubelet_args::render(settings)));
    let dns = kubelet.cluster_dns.as_ref().and_then(|all| all.first());
    call.extend(dns.map(|dns| format!("-DNSClusterIP '{dns}'")));
    let call = call.join(" ");
    let script = r#"[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1""#;
    let mut lines = vec!["<powershell>", custom, script, &call, "</powershell>"];
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

/// The settings of the first call in any of the scripts; `None` if none of them calls.
pub(super) fn read(scripts: &[&str]) -> Result<Option<NodeSettings>, Unreadable> {
    for script in scripts {
        let whole = script.replace('\r', "").replace("\\\n", " ");
        let call = whole.lines().map(str::trim_start).find_map(|line| {
            line.strip_prefix(BOOTSTRAP)
                .map(|rest| (rest, true))
                .or_else(|| line.strip_prefix(POWERSHELL_CALL).map(|rest| (rest, false)))
        });
        if let Some((arguments, is_shell)) = call {
            return read_call(&kubelet_args::words(arguments), is_shell).map(Some);
        }
    }
    Ok(None)
}

fn read_call(words: &[String], is_shell: bool) -> Result<NodeSettings, Unreadable> {
    let mut settings = NodeSettings::default();
    let mut words = words.iter();
    if is_shell {
        settings.cluster.name = words.next().cloned().unwrap_or_default();
    }
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        match name.as_str() {
            "-EKSClusterName" => settings.cluster.name.clone_from(value),
            "--apiserver-endpoint" | "-APIServerEndpoint" => {
                settings.cluster.endpoint.clone_from(value);
            }
            "--b64-cluster-ca" | "-Base64ClusterCA" => {
                settings.cluster.ca_bundle = Some(value.clone());
            }
            "--dns-cluster-ip" | "-DNSClusterIP" => {
                settings.kubelet.cluster_dns = Some(vec![value.clone()]);
            }
            "--kubelet-extra-args" | "-KubeletExtraArgs" => {
                kubelet_args::read(&kubelet_args::words(value), &mut settings)?;
            }
            "--local-disks" if value == "raid0" => {
                settings.instance_store_policy = Some(InstanceStorePolicy::Raid0);
            }
            _ => {}
        }
    }
    Ok(settings)
}
