//! From an HTTP request to what it asks for.

use http::Method;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// A request on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    pub group: String,
    pub version: String,
    pub plural: String,
    pub subresource: String,
    /// Empty: all namespaces, or a cluster-scoped resource.
    pub namespace: String,
    /// Empty: the collection.
    pub name: String,
    pub query: Query,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Resource(Call),
    /// Discovery, version, health: path segments.
    Other(Vec<String>),
    MethodNotAllowed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    fn parse(raw: &str) -> Self {
        let pairs = raw.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
        });
        Self(pairs.collect())
    }

    /// Empty where the parameter is missing: the API server makes no difference.
    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub fn is_true(&self, key: &str) -> bool {
        matches!(self.get(key), "true" | "1" | "True" | "TRUE" | "t" | "T")
    }

    pub fn dry_run(&self) -> bool {
        self.get("dryRun") == "All"
    }
}

pub(crate) fn parse(method: &Method, path: &str, query: &str) -> Target {
    let segments: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(decode).collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Target::Other(segments),
    };
    let (namespace, rest) = match rest {
        // A namespace is itself a resource: its own subresources are not things inside of it.
        ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
        _ => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return Target::Other(segments),
    };
    let query = Query::parse(query);
    let verb = match (method, name.is_empty()) {
        (&Method::GET, _) if query.is_true("watch") && subresource.is_empty() => Verb::Watch,
        (&Method::GET, true) => Verb::List,
        (&Method::GET, false) => Verb::Get,
        (&Method::POST, _) if name.is_empty() != subresource.is_empty() => {
            return Target::MethodNotAllowed;
        }
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, false) => Verb::Update,
        (&Method::PATCH, false) => Verb::Patch,
        (&Method::DELETE, false) => Verb::Delete,
        (&Method::DELETE, true) => Verb::DeleteCollection,
        _ => return Target::MethodNotAllowed,
    };
    Target::Resource(Call {
        verb,
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        subresource: subresource.into(),
        namespace: namespace.into(),
        name: name.into(),
        query,
    })
}

fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = match bytes.get(at..at + 3) {
            Some([b'%', high, low]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            out.push(high << 4 | low);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &Method, uri: &str, expect: &str) {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let got = match parse(method, path, query) {
            Target::Resource(c) => format!(
                "{} {}/{} {} ns={} name={} sub={}",
                c.verb.as_str(),
                c.group,
                c.version,
                c.plural,
                c.namespace,
                c.name,
                c.subresource
            ),
            Target::Other(segments) => format!("other {}", segments.join(" ")),
            Target::MethodNotAllowed => "not allowed".into(),
        };
        assert_eq!(got, expect, "{method} {uri}");
    }

    #[test]
    fn reads_paths() {
        check(&Method::GET, "/api/v1/pods", "list /v1 pods ns= name= sub=");
        check(&Method::GET, "/api/v1/namespaces/a/pods/x", "get /v1 pods ns=a name=x sub=");
        check(&Method::GET, "/api/v1/namespaces", "list /v1 namespaces ns= name= sub=");
        check(&Method::GET, "/api/v1/namespaces/a", "get /v1 namespaces ns= name=a sub=");
        check(
            &Method::PUT,
            "/api/v1/namespaces/a/finalize",
            "update /v1 namespaces ns= name=a sub=finalize",
        );
        check(
            &Method::GET,
            "/apis/apps/v1/deployments?watch=true",
            "watch apps/v1 deployments ns= name= sub=",
        );
        check(
            &Method::GET,
            "/apis/karpenter.sh/v1/nodepools/a/scale",
            "get karpenter.sh/v1 nodepools ns= name=a sub=scale",
        );
        check(
            &Method::POST,
            "/api/v1/namespaces/a/pods/x/eviction",
            "create /v1 pods ns=a name=x sub=eviction",
        );
        check(&Method::DELETE, "/api/v1/nodes", "deletecollection /v1 nodes ns= name= sub=");
        check(&Method::POST, "/api/v1/nodes/a", "not allowed");
        check(&Method::PUT, "/api/v1/nodes", "not allowed");
        check(&Method::GET, "/apis/apps/v1", "other apis apps v1");
        check(&Method::GET, "/version", "other version");
    }

    #[test]
    fn decodes_queries() {
        let query =
            Query::parse("labelSelector=a%3Db%2Cc&fieldSelector=spec.nodeName%3Dn+1&watch=1");
        assert_eq!(query.get("labelSelector"), "a=b,c");
        assert_eq!(query.get("fieldSelector"), "spec.nodeName=n 1");
        assert!(query.is_true("watch"));
        assert_eq!(query.get("limit"), "");
    }
}
