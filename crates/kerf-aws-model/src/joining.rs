//! Why an instance has not become a node yet, as far as the facts at hand tell.

use kerf_aws_api::{AmiFamily, Ec2NodeClass};
use kerf_aws_wire::ec2::{self, InstanceStatus};

/// What is known of an instance that has not joined.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// `None`: EC2 does not know it.
    pub instance: Option<&'a ec2::Instance>,
    /// Of an instance that runs.
    pub status: Option<&'a InstanceStatus>,
    /// `None` where there is none, or where it may not be read.
    pub console: Option<&'a str>,
    /// The provider id of the Node that is called like the instance, if there is one. Empty where it has none.
    pub namesake: Option<&'a str>,
    pub class: Option<&'a Ec2NodeClass>,
    /// The API server's.
    pub endpoint: &'a str,
}

/// Why there is no node, in the order in which it is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotJoined {
    #[error("EC2 does not know the instance any more")]
    Gone,
    #[error("The instance is {state}{}", because(reason))]
    Ended { state: String, reason: String },
    #[error("EC2 is still starting the instance")]
    Pending,
    #[error(
        "The Node {node} is there but has no provider id, which its kubelet or the cloud controller sets"
    )]
    NoProviderId { node: String },
    #[error(
        "The Node {node} is there but has the provider id {provider_id}, and not that of the instance"
    )]
    OtherProviderId { node: String, provider_id: String },
    #[error("The instance runs, but its {check} status check fails")]
    Impaired { check: &'static str },
    #[error(
        "The EC2NodeClass has amiFamily Custom and no userData, so that nothing starts a kubelet unless the AMI does"
    )]
    NoUserData,
    #[error("The instance runs, and its console says: {0}")]
    Console(String),
    #[error(
        "The instance runs and passes its status checks, but no kubelet has registered: check that the role of its instance profile may join the cluster (access entry or aws-auth), and that its security groups and subnet let it reach {endpoint}"
    )]
    Silent { endpoint: String },
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// The most of a line of the console that is told.
const LONGEST: usize = 300;

/// What lines contain that tell of failures.
const COMPLAINTS: [&str; 8] =
    ["error", "fail", "fatal", "denied", "unauthorized", "refused", "timed out", "does not"];

impl Facts<'_> {
    pub fn verdict(&self) -> NotJoined {
        let Some(instance) = self.instance else { return NotJoined::Gone };
        let state = instance.state.as_ref().and_then(|state| state.name.as_deref());
        match state.unwrap_or_default() {
            "running" => self.of_running(instance),
            "pending" => NotJoined::Pending,
            ended => {
                let reason = instance.state_reason.as_ref();
                let reason = reason.and_then(|reason| reason.message.clone());
                let reason = reason.or_else(|| instance.state_transition_reason.clone());
                NotJoined::Ended { state: ended.to_owned(), reason: reason.unwrap_or_default() }
            }
        }
    }

    fn of_running(&self, instance: &ec2::Instance) -> NotJoined {
        if let Some(provider_id) = self.namesake {
            let node = instance.private_dns_name.clone().unwrap_or_default();
            let provider_id = provider_id.to_owned();
            return if provider_id.is_empty() {
                NotJoined::NoProviderId { node }
            } else {
                NotJoined::OtherProviderId { node, provider_id }
            };
        }
        if let Some(check) = self.status.and_then(failed_check) {
            return NotJoined::Impaired { check };
        }
        let is_bare = |class: &Ec2NodeClass| {
            let user_data = class.spec.user_data.as_deref().unwrap_or_default();
            class.spec.ami_family() == AmiFamily::Custom && user_data.trim().is_empty()
        };
        if self.class.is_some_and(is_bare) {
            return NotJoined::NoUserData;
        }
        match self.console.and_then(last_complaint) {
            Some(line) => NotJoined::Console(line),
            None => NotJoined::Silent { endpoint: self.endpoint.to_owned() },
        }
    }
}

fn failed_check(status: &InstanceStatus) -> Option<&'static str> {
    let is_impaired = |summary: &Option<ec2::InstanceStatusSummary>| {
        summary.as_ref().and_then(|summary| summary.status.as_deref()) == Some("impaired")
    };
    if is_impaired(&status.system_status) {
        Some("system")
    } else {
        is_impaired(&status.instance_status).then_some("instance")
    }
}

/// The last line that tells of a failure.
fn last_complaint(console: &str) -> Option<String> {
    let complains = |line: &&str| {
        let line = line.to_lowercase();
        COMPLAINTS.iter().any(|word| line.contains(word))
    };
    let line = console.lines().map(str::trim).rfind(complains)?;
    // Consoles have colours and bells.
    Some(line.chars().filter(|character| !character.is_control()).take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(state: &str, reason: Option<&str>) -> ec2::Instance {
        ec2::Instance {
            private_dns_name: Some("ip-10-0-0-4.ec2.internal".to_owned()),
            state: Some(ec2::InstanceState { code: None, name: Some(state.to_owned()) }),
            state_reason: reason
                .map(|text| ec2::StateReason { code: None, message: Some(text.to_owned()) }),
            ..ec2::Instance::default()
        }
    }

    fn check(facts: Facts<'_>, expected: &str) {
        let said = facts.verdict().to_string();
        assert!(said.contains(expected), "{said:?} has no {expected:?}");
    }

    #[test]
    fn an_instance_that_does_not_run_says_why() {
        let none = Facts {
            instance: None,
            status: None,
            console: None,
            namesake: None,
            class: None,
            endpoint: "https://api",
        };
        check(none, "EC2 does not know the instance");
        let spot = "Server.SpotInstanceTermination: Spot instance termination";
        for (state, reason, expected) in [
            ("pending", None, "still starting"),
            ("terminated", Some(spot), "is terminated: Server.SpotInstanceTermination"),
            ("shutting-down", None, "is shutting-down"),
            ("stopped", Some("Client.InstanceInitiatedShutdown"), "is stopped: Client."),
        ] {
            let instance = instance(state, reason);
            check(Facts { instance: Some(&instance), ..none }, expected);
        }
    }

    #[test]
    fn of_an_instance_that_runs_the_nearest_reason_is_told() {
        let instance = instance("running", None);
        let facts = Facts {
            instance: Some(&instance),
            status: None,
            console: None,
            namesake: None,
            class: None,
            endpoint: "https://api",
        };
        check(facts, "reach https://api");
        check(
            Facts { namesake: Some(""), ..facts },
            "ip-10-0-0-4.ec2.internal is there but has no",
        );
        check(Facts { namesake: Some("aws:///a/i-2"), ..facts }, "the provider id aws:///a/i-2");
        let impaired = |status: &str| {
            Some(ec2::InstanceStatusSummary {
                details: Vec::new(),
                status: Some(status.to_owned()),
            })
        };
        for (instance_status, system_status, expected) in [
            ("impaired", "ok", "its instance status check fails"),
            ("impaired", "impaired", "its system status check fails"),
            ("initializing", "ok", "no kubelet has registered"),
        ] {
            let status = InstanceStatus {
                instance_status: impaired(instance_status),
                system_status: impaired(system_status),
                ..InstanceStatus::default()
            };
            check(Facts { status: Some(&status), ..facts }, expected);
        }
        let console = "booting\nnodeadm: Error: cannot describe cluster \u{1b}[0m\nlogin:";
        check(
            Facts { console: Some(console), ..facts },
            "its console says: nodeadm: Error: cannot describe cluster [0m",
        );
        check(Facts { console: Some("all is well\nlogin:"), ..facts }, "no kubelet has registered");
    }

    #[test]
    fn a_custom_family_without_user_data_starts_no_kubelet() {
        let instance = instance("running", None);
        for (family, user_data, is_bare) in [
            ("Custom", None, true),
            ("Custom", Some("  "), true),
            ("Custom", Some("#!/bin/sh"), false),
            ("AL2023", None, false),
        ] {
            let class: Ec2NodeClass = serde_json::from_value(serde_json::json!({
                "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
                "metadata": {"name": "default"},
                "spec": {
                    "amiFamily": family, "userData": user_data, "role": "r",
                    "amiSelectorTerms": [{"id": "ami-1"}],
                    "subnetSelectorTerms": [], "securityGroupSelectorTerms": [],
                },
            }))
            .unwrap();
            let facts = Facts {
                instance: Some(&instance),
                status: None,
                console: None,
                namesake: None,
                class: Some(&class),
                endpoint: "https://api",
            };
            assert_eq!(facts.verdict() == NotJoined::NoUserData, is_bare, "{family} {user_data:?}");
        }
    }
}
