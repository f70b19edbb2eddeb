//! Names, labels and owners: the rules all kinds share.

use super::super::meta;
use super::super::resources::Resource;
use kerf_admission::Cause;
use serde_json::Value;

pub(in super::super) fn validate_metadata(
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    if old.is_none() {
        validate_name(resource, new, &mut causes);
    }
    let unchanged =
        |key: &str| old.is_some_and(|old| meta::field(old, key) == meta::field(new, key));
    if !unchanged("labels") {
        for (key, value) in meta::field(new, "labels").as_object().into_iter().flatten() {
            validate_key("metadata.labels", key, &mut causes);
            if !value.as_str().is_some_and(is_label_value) {
                let detail = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                              '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                              'my_value',  or '12345', regex used for validation is \
                              '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
                causes.push(Cause::invalid("metadata.labels", value, detail));
            }
        }
    }
    if !unchanged("annotations") {
        for key in
            meta::field(new, "annotations").as_object().into_iter().flatten().map(|(key, _)| key)
        {
            validate_key("metadata.annotations", &key.to_lowercase(), &mut causes);
        }
    }
    if !unchanged("ownerReferences") {
        validate_owners(new, &mut causes);
    }
    if !unchanged("finalizers") {
        for finalizer in meta::finalizers(new) {
            if !is_qualified(finalizer) {
                causes.push(Cause::invalid("metadata.finalizers", &finalizer.into(), QUALIFIED));
            }
        }
    }
    causes
}

fn validate_name(resource: &Resource, new: &Value, causes: &mut Vec<Cause>) {
    let name = meta::name(new);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
        return;
    }
    // RBAC names may hold colons; anything that fits into a path goes.
    if resource.group == "rbac.authorization.k8s.io" {
        return;
    }
    let is_label = resource.is("", "namespaces") || resource.is("", "services");
    let (valid, detail) = if is_label {
        (
            name.len() <= 63 && is_dns_label(name),
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        )
    } else {
        (
            name.len() <= 253 && name.split('.').all(is_dns_label),
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        )
    };
    if !valid {
        causes.push(Cause::invalid("metadata.name", &name.into(), detail));
    }
}

fn validate_owners(new: &Value, causes: &mut Vec<Cause>) {
    let owners = meta::field(new, "ownerReferences").as_array();
    let mut controllers = 0;
    for (index, owner) in owners.into_iter().flatten().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if meta::text(owner, &[key]).is_empty() {
                let detail = if key == "apiVersion" {
                    "version must not be empty"
                } else {
                    "must not be empty"
                };
                causes.push(Cause::invalid(
                    format!("metadata.ownerReferences[{index}].{key}"),
                    &"".into(),
                    detail,
                ));
            }
        }
        controllers += usize::from(owner["controller"] == true);
    }
    if controllers > 1 {
        let detail = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid("metadata.ownerReferences", &Value::Null, detail));
    }
}

const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                         an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn validate_key(path: &str, key: &str, causes: &mut Vec<Cause>) {
    if !is_qualified(key) {
        causes.push(Cause::invalid(path, &key.into(), QUALIFIED));
    }
}

fn is_qualified(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_fits =
        prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_dns_label));
    prefix_fits && !name.is_empty() && is_label_value(name)
}

fn is_label_value(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.is_empty()
        || (text.len() <= 63
            && bytes.iter().copied().all(inner)
            && ends(bytes.first())
            && ends(bytes.last()))
}

pub(super) fn is_dns_label(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = |b: Option<&u8>| b.is_some_and(|b| plain(*b));
    bytes.iter().all(|b| plain(*b) || *b == b'-') && ends(bytes.first()) && ends(bytes.last())
}
