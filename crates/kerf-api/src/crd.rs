//! The CRDs, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    ValidationRule,
};
use kube_core::{CustomResourceExt, Message, Rule};

use crate::{nodeclaim::NodeClaim, nodepool::NodePool, schema};

/// One file of the chart's `crds` directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdFile {
    pub name: String,
    pub yaml: String,
}

/// A CRD could not be written as YAML.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the CRD {name} as YAML")]
pub struct WriteCrdError {
    name: String,
    #[source]
    source: serde_saphyr::ser::Error,
}

/// What a provider adds to the CRDs.
#[derive(Clone, Debug)]
pub struct Additions<'a> {
    /// Those of its NodeClasses.
    pub node_classes: Vec<CustomResourceDefinition>,
    /// The domain of its labels.
    pub domain: &'a str,
    /// The labels of that domain that requirements may use; no others of it may be used.
    pub labels_in_requirements: &'a [&'a str],
}

/// The CRDs as they are shipped for a provider: the core's, with the provider's labels reserved, and its own.
pub fn crds(additions: &Additions<'_>) -> Vec<CustomResourceDefinition> {
    let mut crds = crds_without_provider();
    for crd in &mut crds {
        reserve_labels(crd, additions);
    }
    crds.extend(additions.node_classes.iter().cloned());
    crds
}

/// NodePool and NodeClaim as they are for any provider.
pub fn crds_without_provider() -> Vec<CustomResourceDefinition> {
    [NodePool::crd(), NodeClaim::crd()].map(mended).into()
}

/// CRDs as the files `<group>_<plural>.yaml`.
pub fn crd_files(crds: Vec<CustomResourceDefinition>) -> Result<Vec<CrdFile>, WriteCrdError> {
    let file = |crd: CustomResourceDefinition| {
        let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        match serde_saphyr::to_string(&crd) {
            Ok(yaml) => Ok(CrdFile { name, yaml }),
            Err(source) => Err(WriteCrdError { name, source }),
        }
    };
    crds.into_iter().map(file).collect()
}

/// CRDs as one stream of YAML documents.
pub fn crds_yaml(crds: Vec<CustomResourceDefinition>) -> Result<String, WriteCrdError> {
    let documents: Vec<String> = crd_files(crds)?.into_iter().map(|file| file.yaml).collect();
    Ok(documents.join("---\n"))
}

/// Requirements may use the labels that the provider knows and no others of its domain. Labels of a NodePool's template are
/// not restricted in this way, as in Karpenter's chart.
fn reserve_labels(crd: &mut CustomResourceDefinition, additions: &Additions<'_>) {
    let path: &[&str] = match crd.spec.names.kind.as_str() {
        "NodePool" => &["spec", "template", "spec", "requirements"],
        _ => &["spec", "requirements"],
    };
    let rule =
        schema::outside_of_domain("self", additions.domain, additions.labels_in_requirements);
    let requirements = root(crd).and_then(|root| at(root, path));
    if let Some(Some(JSONSchemaPropsOrArray::Schema(item))) =
        requirements.map(|list| &mut list.items)
        && let Some(key) = at(item, &["key"])
    {
        key.x_kubernetes_validations.get_or_insert_default().push(validation_rule(rule));
    }
}

fn validation_rule(rule: Rule) -> ValidationRule {
    let message = match rule.message {
        Some(Message::Message(message)) => Some(message),
        _ => None,
    };
    ValidationRule { rule: rule.rule, message, ..Default::default() }
}

/// Mends what the derived schema says differently from what is meant.
pub fn mended(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    fn mend(schema: &mut JSONSchemaProps) {
        schema.title = None;
        // An Option is a field that may be left out; derived schemas also let it be null.
        schema.nullable = None;
        // Lines of a doc comment end where the source file wants it; `kubectl explain` wraps by
        // itself.
        if let Some(description) = &mut schema.description {
            *description = description.replace('\n', " ");
        }
        // kube's rewriting empties the alternatives of a quantity.
        if schema.x_kubernetes_int_or_string == Some(true) {
            let only =
                |kind: &str| JSONSchemaProps { type_: Some(kind.to_owned()), ..Default::default() };
            schema.any_of = Some(vec![only("integer"), only("string")]);
        }
        schema.properties.iter_mut().flatten().for_each(|(_, property)| mend(property));
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut schema.items {
            mend(item);
        }
        if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
            mend(value);
        }
    }
    if let Some(root) = root(&mut crd) {
        mend(root);
    }
    crd
}

/// The schema of the first version.
pub fn root(crd: &mut CustomResourceDefinition) -> Option<&mut JSONSchemaProps> {
    crd.spec.versions.first_mut()?.schema.as_mut()?.open_api_v3_schema.as_mut()
}

/// The property at this path.
pub fn at<'a>(schema: &'a mut JSONSchemaProps, path: &[&str]) -> Option<&'a mut JSONSchemaProps> {
    path.iter().try_fold(schema, |schema, name| schema.properties.as_mut()?.get_mut(*name))
}
