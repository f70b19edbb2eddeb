//! Reviews: who am I, and may I? The testbed has no users and no rights, so everyone may do everything.

use super::request::{Call, Verb};
use super::{Answer, ApiError};
use http::StatusCode;
use serde_json::{Value, json};

/// The answer to a review; `None` for all other calls.
pub(super) fn answer(call: &Call, body: &[u8]) -> Option<Result<Answer, ApiError>> {
    let status = match (call.group.as_str(), call.plural.as_str()) {
        ("authorization.k8s.io", "selfsubjectaccessreviews") => {
            json!({ "allowed": true, "reason": "the testbed has no rights to check" })
        }
        ("authorization.k8s.io", "selfsubjectrulesreviews") => json!({
            "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
            "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            "incomplete": false,
        }),
        ("authentication.k8s.io", "selfsubjectreviews") => {
            json!({ "userInfo": { "username": "kerf", "groups": ["system:masters"] } })
        }
        _ => return None,
    };
    if call.verb != Verb::Create {
        return Some(Err(ApiError::MethodNotAllowed));
    }
    Some(match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(mut review)) => {
            review.insert("status".into(), status);
            Ok(Answer::Value(StatusCode::CREATED, Value::Object(review)))
        }
        _ => Err(ApiError::BadRequest("the review provided is unrecognized".into())),
    })
}
