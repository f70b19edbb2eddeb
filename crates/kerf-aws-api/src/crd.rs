//! The CRD of EC2NodeClass, generated from the types and the rules.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kerf_api::crd::{self, Additions};
use kube_core::CustomResourceExt;

use crate::{Ec2NodeClass, GROUP, labels, rules::rules};

/// What AWS adds to the CRDs.
pub fn additions() -> Additions<'static> {
    Additions {
        node_classes: vec![node_class()],
        domain: GROUP,
        labels_in_requirements: &labels::IN_REQUIREMENTS,
        restricts_template_labels: true,
    }
}

fn node_class() -> CustomResourceDefinition {
    let mut crd = crd::mended(Ec2NodeClass::crd());
    let Some(root) = crd::root(&mut crd) else { return crd };
    // A class without a spec can be stored and read; that it is of no use its status says.
    root.required = None;
    if let Some(spec) = crd::at(root, &["spec"]) {
        let needed = ["amiSelectorTerms", "securityGroupSelectorTerms", "subnetSelectorTerms"];
        spec.required = Some(needed.map(str::to_owned).into());
    }
    for (place, rule) in rules() {
        if let Some(schema) = at(root, place) {
            crd::add_rule(schema, rule);
        }
    }
    crd
}

/// The schema at a path such as `spec.amiSelectorTerms[].alias`.
fn at<'a>(root: &'a mut JSONSchemaProps, path: &str) -> Option<&'a mut JSONSchemaProps> {
    path.split('.').try_fold(root, |schema, step| {
        let Some(list) = step.strip_suffix("[]") else { return crd::at(schema, &[step]) };
        match &mut crd::at(schema, &[list])?.items {
            Some(JSONSchemaPropsOrArray::Schema(item)) => Some(&mut **item),
            _ => None,
        }
    })
}
