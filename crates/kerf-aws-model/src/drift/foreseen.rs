//! What would drift if a class were as it stands in a file, told without an account.

use kerf_api::NodeClaim;
use kerf_aws_api::{AliasVersion, Ec2NodeClass, annotations, hash::NODE_CLASS};
use kerf_model::{InstanceType, KnownLabels};

use super::Drift;
use crate::images::Images;

/// Why it cannot be told whether a field of the class has changed that decides what instances are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untold {
    /// A snapshot leaves out user data, role and tags.
    #[error(
        "the EC2NodeClass has neither role nor instanceProfile, so that it is not whole; other fields than \
         amiSelectorTerms are not compared with what nodes were launched with"
    )]
    NotWhole,
    /// It is part of the user data, and so of the hash.
    #[error(
        "the CA of the cluster is not known, so that other fields of the EC2NodeClass than amiSelectorTerms are not \
         compared with what nodes were launched with; set --cluster-ca-bundle"
    )]
    NoCaBundle,
}

impl Drift {
    /// What the operator would find of the claim with a class that was changed in its file. What is not among the objects,
    /// such as the subnet of the instance, is not compared.
    pub fn foreseen(
        claim: &NodeClaim,
        class: &Ec2NodeClass,
        instance_type: Option<&InstanceType>,
        labels: &KnownLabels,
        ca_bundle: Option<&str>,
    ) -> (Option<Self>, Option<Untold>) {
        match of_hash(claim, class, ca_bundle) {
            Ok(Some(drift)) => (Some(drift), None),
            Ok(None) => (of_images(claim, class, instance_type, labels), None),
            Err(untold) => (of_images(claim, class, instance_type, labels), Some(untold)),
        }
    }
}

fn of_hash(
    claim: &NodeClaim,
    class: &Ec2NodeClass,
    ca_bundle: Option<&str>,
) -> Result<Option<Drift>, Untold> {
    let Some(written) = claim.metadata.annotations.as_ref() else { return Ok(None) };
    let Some(launched_with) = written.get(annotations::NODE_CLASS_HASH) else { return Ok(None) };
    if !NODE_CLASS.is_current(written) {
        return Ok(None);
    }
    if class.spec.role.is_none() && class.spec.instance_profile.is_none() {
        return Err(Untold::NotWhole);
    }
    let now = class.spec.hash(Some(ca_bundle.ok_or(Untold::NoCaBundle)?));
    let launched_with = launched_with.clone();
    Ok((now != launched_with).then_some(Drift::NodeClass { launched_with, now }))
}

/// The status has the images of the class as it was. Of a pinned alias and of ids it can be told without asking whether they
/// are still these.
fn of_images(
    claim: &NodeClaim,
    class: &Ec2NodeClass,
    instance_type: Option<&InstanceType>,
    labels: &KnownLabels,
) -> Option<Drift> {
    let launched_with = claim.status.as_ref().map(|status| status.image_id.clone())?;
    if launched_with.is_empty() {
        return None;
    }
    let amis = class.status.as_ref().map(|status| status.amis.as_slice()).unwrap_or_default();
    let other =
        |now: String| Some(Drift::Ami { launched_with: launched_with.clone(), now: Some(now) });
    if let Some(alias) = class.spec.alias()
        && let AliasVersion::Pinned(release) = alias.version()
    {
        let named = amis.iter().find(|ami| ami.id == launched_with);
        let name = named.and_then(|ami| ami.name.as_deref())?;
        let is_of_release = name.split('-').any(|part| part == release.as_str());
        return if is_of_release { None } else { other(alias.to_string()) };
    }
    let terms = &class.spec.ami_selector_terms;
    let ids: Vec<_> = terms.iter().filter_map(|term| term.id.as_deref()).collect();
    if !terms.is_empty() && ids.len() == terms.len() {
        return if ids.contains(&launched_with.as_str()) { None } else { other(ids.join(" or ")) };
    }
    let now = Images::new(amis, labels).of(instance_type?)?.to_owned();
    if now == launched_with { None } else { other(now) }
}

#[cfg(test)]
mod tests {
    use kerf_api::labels;
    use serde_json::{Value, json};

    use super::*;
    use crate::test_launch::{claim, class, instance_type, known_labels};

    const CA: &str = "Y2EtYnVuZGxl";

    /// A claim that was launched with role, user data and the newest AL2023, and the class as a file has it now.
    fn foreseen(spec: &Value, ca_bundle: Option<&str>) -> (Option<Drift>, Option<Untold>) {
        let before = json!({
            "role": "nodes", "userData": "echo 1", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "amiFamily": null,
        });
        let mut spec_now = before.clone();
        for (field, value) in spec.as_object().unwrap() {
            spec_now[field] = value.clone();
        }
        let mut claim = claim(&json!({}));
        let written = claim.metadata.annotations.get_or_insert_default();
        NODE_CLASS.write(written, class(&before).spec.hash(Some(CA)));
        claim.status.get_or_insert_default().image_id = "ami-1".to_owned();
        let mut class = class(&spec_now);
        let requirements = json!([{"key": labels::ARCH, "operator": "In", "values": ["amd64"]}]);
        class.status.get_or_insert_default().amis = serde_json::from_value(json!([{
            "id": "ami-1", "name": "amazon-eks-node-al2023-x86_64-standard-1.34-v20261101",
            "requirements": requirements,
        }]))
        .unwrap();
        let of_claim = instance_type("m5.large", "amd64", json!({}), &[]);
        Drift::foreseen(&claim, &class, Some(&of_claim), &known_labels(), ca_bundle)
    }

    fn ami(now: &str) -> Drift {
        Drift::Ami { launched_with: "ami-1".to_owned(), now: Some(now.to_owned()) }
    }

    #[test]
    fn what_a_change_of_the_class_would_do_to_its_nodes() {
        let alias = |alias: &str| json!({ "amiSelectorTerms": [{ "alias": alias }] });
        let ids = |ids: &[&str]| {
            let terms: Vec<_> = ids.iter().map(|id| json!({ "id": id })).collect();
            json!({ "amiSelectorTerms": terms, "amiFamily": "AL2023" })
        };
        for (spec, expected) in [
            (json!({}), None),
            (alias("al2023@v20261101"), None),
            (alias("al2023@v20261001"), Some(ami("al2023@v20261001"))),
            (ids(&["ami-2", "ami-1"]), None),
            (ids(&["ami-2", "ami-3"]), Some(ami("ami-2 or ami-3"))),
        ] {
            assert_eq!(foreseen(&spec, Some(CA)), (expected, None), "{spec}");
        }
        for changed in [
            json!({"userData": "echo 2"}),
            json!({"role": "others"}),
            json!({"tags": {"team": "b"}}),
            // Another family is another form of user data.
            alias("bottlerocket@v1.46.0"),
        ] {
            let (drift, untold) = foreseen(&changed, Some(CA));
            let reason = drift.as_ref().map(Drift::reason);
            assert_eq!((reason, untold), (Some("NodeClassDrift"), None), "{changed}");
        }
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let changed = json!({"userData": "echo 2"});
        assert_eq!(foreseen(&changed, None), (None, Some(Untold::NoCaBundle)));
        let of_snapshot = json!({"role": null, "userData": null});
        assert_eq!(foreseen(&of_snapshot, Some(CA)), (None, Some(Untold::NotWhole)));
        let pinned = json!({"role": null, "amiSelectorTerms": [{"alias": "al2023@v20261001"}]});
        assert_eq!(
            foreseen(&pinned, None),
            (Some(ami("al2023@v20261001")), Some(Untold::NotWhole))
        );
    }
}
