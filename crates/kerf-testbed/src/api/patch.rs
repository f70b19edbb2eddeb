//! The four kinds of patches.

mod apply;
mod shape;
mod strategic;

pub(super) use apply::disown_changed;

use super::resources::Resource;
use super::{ApiError, meta};
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    pub(super) fn of(content_type: &str, resource: &Resource) -> Result<Self, ApiError> {
        const CUSTOM: &str = "the body of the request was in an unknown format - accepted media types include: \
                              application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if resource.custom.is_none() => {
                Ok(Self::Strategic)
            }
            "application/apply-patch+yaml" => Ok(Self::Apply),
            "application/strategic-merge-patch+json" => {
                Err(ApiError::UnsupportedMediaType(CUSTOM.into()))
            }
            _ => Err(ApiError::UnsupportedMediaType("415: Unsupported Media Type".into())),
        }
    }
}

pub(super) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

impl Patch {
    pub(super) fn parse(kind: PatchKind, body: &[u8]) -> Result<Self, ApiError> {
        let bad = |error: serde_json::Error| {
            ApiError::BadRequest(format!("error decoding patch: {error}"))
        };
        if kind == PatchKind::Json {
            return Ok(Self::Json(serde_json::from_slice(body).map_err(bad)?));
        }
        let value: Value = serde_json::from_slice(body).map_err(bad)?;
        if !value.is_object() {
            return Err(ApiError::BadRequest("error decoding patch: not an object".into()));
        }
        Ok(match kind {
            PatchKind::Strategic => Self::Strategic(value),
            PatchKind::Apply => Self::Apply(value),
            PatchKind::Merge | PatchKind::Json => Self::Merge(value),
        })
    }

    pub(super) fn apply_to(&self, value: &mut Value) -> Result<(), ApiError> {
        match self {
            Self::Json(patch) => {
                json_patch::patch(value, patch).map_err(|_| ApiError::Unprocessable)?;
            }
            Self::Merge(patch) | Self::Apply(patch) => merge(value, patch),
            Self::Strategic(patch) => strategic::merge(value, patch),
        }
        Ok(())
    }
}

/// RFC 7386.
fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    let map: &mut Map<String, Value> = meta::map_mut(value);
    for (key, change) in patch {
        if change.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}
