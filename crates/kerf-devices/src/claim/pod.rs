//! Which claims a pod has.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::ClaimId;

/// A claim that a pod needs before it can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    /// The entry in the pod's `spec.resourceClaims`.
    pub entry: Arc<str>,
    pub claim: ClaimId,
    /// Whether it was made from a template for this pod. Then the pod has to own it.
    pub generated: bool,
}

/// Why the claims of a pod are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoClaim {
    /// It passes: the controller for claims makes it.
    #[error("the claim of its entry {entry} is not made from its template yet")]
    NotGenerated { entry: String },
    #[error("its entry {entry} names neither a claim nor a template")]
    UnknownSource { entry: String },
}

impl NoClaim {
    /// Whether the pod merely has to wait.
    pub fn passes(&self) -> bool {
        matches!(self, Self::NotGenerated { .. })
    }
}

/// The claims of a pod, in order. An entry for which Kubernetes noted that no claim is needed is left out.
pub fn claims_of(pod: &Pod) -> Result<Vec<PodClaim>, NoClaim> {
    let namespace: Arc<str> = pod.metadata.namespace.as_deref().unwrap_or_default().into();
    let entries = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let mut claims = Vec::new();
    for entry in entries {
        let (name, generated) =
            match (&entry.resource_claim_name, &entry.resource_claim_template_name) {
                (Some(name), _) => (Some(name), false),
                (None, Some(_)) => {
                    let statuses =
                        pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter());
                    let status = statuses.flatten().find(|status| status.name == entry.name);
                    let not_generated = || NoClaim::NotGenerated { entry: entry.name.clone() };
                    (status.ok_or_else(not_generated)?.resource_claim_name.as_ref(), true)
                }
                (None, None) => return Err(NoClaim::UnknownSource { entry: entry.name.clone() }),
            };
        if let Some(name) = name {
            claims.push(PodClaim {
                entry: entry.name.as_str().into(),
                claim: ClaimId { namespace: namespace.clone(), name: name.as_str().into() },
                generated,
            });
        }
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        PodResourceClaim, PodResourceClaimStatus, PodSpec, PodStatus,
    };

    use super::*;

    fn check(
        claim: Option<&str>,
        template: Option<&str>,
        status: &[Option<&str>],
    ) -> Result<Vec<String>, NoClaim> {
        let entry = PodResourceClaim {
            name: "gpu".into(),
            resource_claim_name: claim.map(Into::into),
            resource_claim_template_name: template.map(Into::into),
        };
        let statuses = status.iter().map(|name| PodResourceClaimStatus {
            name: "gpu".into(),
            resource_claim_name: name.map(Into::into),
        });
        let pod = Pod {
            spec: Some(PodSpec { resource_claims: Some(vec![entry]), ..PodSpec::default() }),
            status: Some(PodStatus {
                resource_claim_statuses: Some(statuses.collect()),
                ..PodStatus::default()
            }),
            ..Pod::default()
        };
        let claims = claims_of(&pod)?;
        Ok(claims.iter().map(|one| format!("{} {}", one.claim.name, one.generated)).collect())
    }

    #[test]
    fn finds_claims_by_name_and_through_their_templates() {
        assert_eq!(check(Some("mine"), None, &[]), Ok(vec!["mine false".to_owned()]));
        let made = check(None, Some("template"), &[Some("made")]);
        assert_eq!(made, Ok(vec!["made true".to_owned()]));
        assert_eq!(check(None, Some("template"), &[None]), Ok(vec![]));
    }

    #[test]
    fn a_claim_that_is_not_made_yet_is_waited_for() {
        let missing = check(None, Some("template"), &[]).unwrap_err();
        assert!(missing.passes(), "{missing}");
        let unknown = check(None, None, &[]).unwrap_err();
        assert!(!unknown.passes(), "{unknown}");
    }
}
