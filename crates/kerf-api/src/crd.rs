//! The CRDs, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    ValidationRule,
};
use kube_core::{CustomResourceExt, Message, Rule};

use crate::{
    capacity_buffer, node_overlay::NodeOverlay, nodeclaim::NodeClaim, nodepool::NodePool, schema,
};

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
    /// Whether the same holds for the labels of a NodePool's template.
    pub restricts_template_labels: bool,
}

/// The CRDs as they are shipped for these providers: the core's, with the providers' labels reserved, their own, and the one that
/// is shared with other autoscalers.
pub fn crds(providers: &[Additions<'_>]) -> Vec<CustomResourceDefinition> {
    let mut crds = crds_without_provider();
    for additions in providers {
        for crd in &mut crds {
            reserve_labels(crd, additions);
        }
    }
    crds.extend(providers.iter().flat_map(|additions| additions.node_classes.iter().cloned()));
    crds.push(capacity_buffer::definition());
    crds
}

/// NodePool, NodeClaim and NodeOverlay as they are for any provider.
pub fn crds_without_provider() -> Vec<CustomResourceDefinition> {
    [NodePool::crd(), NodeClaim::crd(), NodeOverlay::crd()].map(mended).into()
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

/// Requirements may use the labels that the provider knows and no others of its domain. Whether that holds for the labels of
/// templates differs between the charts of Karpenter's providers.
fn reserve_labels(crd: &mut CustomResourceDefinition, additions: &Additions<'_>) {
    let rule = |key: &str| {
        schema::outside_of_domain(key, additions.domain, additions.labels_in_requirements)
    };
    let is_pool = crd.spec.names.kind == "NodePool";
    // Overlays select among all labels that instance types have.
    let is_overlay = crd.spec.names.kind == "NodeOverlay";
    let Some(root) = root(crd).filter(|_| !is_overlay) else { return };
    let requirements: &[&str] = if is_pool {
        &["spec", "template", "spec", "requirements"]
    } else {
        &["spec", "requirements"]
    };
    if let Some(Some(JSONSchemaPropsOrArray::Schema(item))) =
        at(root, requirements).map(|list| &mut list.items)
        && let Some(key) = at(item, &["key"])
    {
        add_rule(key, rule("self"));
    }
    if is_pool
        && additions.restricts_template_labels
        && let Some(labels) = at(root, &["spec", "template", "metadata", "labels"])
    {
        add_rule(labels, schema::every_key(rule("key")));
    }
}

/// Adds a CEL rule.
pub fn add_rule(schema: &mut JSONSchemaProps, rule: Rule) {
    let message = match rule.message {
        Some(Message::Message(message)) => Some(message),
        _ => None,
    };
    let rule = ValidationRule { rule: rule.rule, message, ..Default::default() };
    schema.x_kubernetes_validations.get_or_insert_default().push(rule);
}

/// Mends what the derived schema says differently from what is meant.
pub fn mended(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    fn mend(schema: &mut JSONSchemaProps) {
        schema.title = None;
        // An Option is a field that may be left out; derived schemas also let it be null.
        schema.nullable = None;
        schema.enum_.iter_mut().for_each(|values| values.retain(|value| !value.0.is_null()));
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
