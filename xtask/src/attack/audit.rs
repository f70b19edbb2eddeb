//! The API server's own account of who wrote what and when.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

/// One request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) received: Timestamp,
    pub(super) answered: Timestamp,
    pub(super) user: String,
    pub(super) verb: String,
    /// With the subresource: `pods/eviction`.
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) code: u16,
    /// Of a lease: who holds it from now on.
    pub(super) holder: Option<String>,
}

/// From when on a user holds the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) user: String,
    pub(super) from: Timestamp,
}

/// A write by a user while another one held the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trespass {
    pub(super) entry: Entry,
    pub(super) holder: Term,
}

pub(super) fn read(path: &Path) -> Result<Vec<Entry>> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut entries = entries(BufReader::new(file))?;
    entries.sort_by_key(|entry| entry.received);
    Ok(entries)
}

/// A watch is written down when it begins and when it ends: the first of both is the request.
fn entries(log: impl BufRead) -> Result<Vec<Entry>> {
    let (mut entries, mut requests) = (Vec::new(), HashSet::new());
    for line in log.split(b'\n') {
        // The last line may be half written.
        if let Ok(line) = serde_json::from_slice::<Line>(&line?)
            && requests.insert(line.audit_id.clone())
        {
            entries.extend(Entry::of(line));
        }
    }
    Ok(entries)
}

/// Who held the lease of this name and from when on, by what its holders wrote into it.
pub(super) fn terms(entries: &[Entry], lease: &str) -> Vec<Term> {
    let mut held: Vec<_> = entries
        .iter()
        .filter(|entry| entry.resource == "leases" && entry.name == lease && entry.code < 300)
        .filter_map(|entry| Some((entry.answered, &entry.user, entry.holder.as_deref()?)))
        .collect();
    held.sort();
    let mut terms: Vec<Term> = Vec::new();
    let mut last = "";
    for (from, user, holder) in held {
        // One that is released stays with the user that released it until another takes it.
        if holder != last && !holder.is_empty() {
            terms.push(Term { user: user.clone(), from });
        }
        last = holder;
    }
    terms
}

/// What these users wrote while another one held the lease. What the server refused is not there.
pub(super) fn trespasses(entries: &[Entry], terms: &[Term], users: &[String]) -> Vec<Trespass> {
    let writes = entries
        .iter()
        .filter(|entry| entry.is_write() && entry.code < 400 && users.contains(&entry.user));
    writes
        .filter_map(|entry| {
            let holder = terms.iter().rev().find(|term| term.from < entry.received)?;
            (holder.user != entry.user)
                .then(|| Trespass { entry: entry.clone(), holder: holder.clone() })
        })
        .collect()
}

impl Entry {
    fn of(line: Line) -> Option<Self> {
        let Reference { resource, subresource, name } = line.object_ref?;
        let resource = match subresource {
            Some(sub) => format!("{resource}/{sub}"),
            None => resource,
        };
        Some(Self {
            received: line.request_received_timestamp,
            answered: line.stage_timestamp,
            user: line.user.username,
            verb: line.verb,
            resource,
            name: name.unwrap_or_default(),
            code: line.response_status.map_or(0, |status| status.code),
            holder: line.request_object.map(|lease| lease.spec.holder_identity),
        })
    }

    /// A change of the cluster. The lease is how the right to make one is got.
    pub(super) fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
            && self.resource != "leases"
            // A question that is asked by creating it.
            && !self.resource.ends_with("reviews")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { received, user, verb, resource, name, code, .. } = self;
        write!(f, "{received} {user}: {verb} {resource} {name} ({code})")
    }
}

impl fmt::Display for Trespass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let late = self.entry.received.duration_since(self.holder.from).as_secs_f64();
        write!(f, "{}, {late:.3} s after {} took the lease", self.entry, self.holder.user)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    audit_id: String,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
    user: User,
    verb: String,
    object_ref: Option<Reference>,
    response_status: Option<ResponseStatus>,
    request_object: Option<Lease>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct Reference {
    resource: String,
    subresource: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct ResponseStatus {
    code: u16,
}

#[derive(Deserialize)]
struct Lease {
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(second: i64, user: &str, verb: &str, resource: &str, holder: Option<&str>) -> Entry {
        let at = Timestamp::from_second(second).unwrap();
        Entry {
            received: at,
            answered: at,
            user: user.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: "l".to_owned(),
            code: 200,
            holder: holder.map(str::to_owned),
        }
    }

    #[test]
    fn a_write_after_another_took_the_lease_is_a_trespass() {
        let entries = [
            entry(1, "a", "create", "leases", Some("a1")),
            entry(2, "a", "create", "nodeclaims", None),
            entry(3, "a", "update", "leases", Some("a1")),
            entry(20, "b", "update", "leases", Some("b1")),
            entry(21, "b", "create", "nodeclaims", None),
            entry(22, "a", "get", "nodeclaims", None),
            entry(23, "a", "create", "pods/eviction", None),
            entry(24, "a", "update", "leases", Some("a1")),
            entry(25, "admin", "patch", "pods", None),
            Entry { code: 409, ..entry(26, "b", "patch", "nodes", None) },
            entry(27, "b", "patch", "nodes", None),
            // Released: what is under way belongs to the one that released it.
            entry(30, "a", "update", "leases", Some("")),
            entry(31, "a", "create", "events", None),
            entry(32, "a", "update", "leases", Some("a2")),
        ];
        let users = ["a".to_owned(), "b".to_owned()];
        let terms = terms(&entries, "l");
        let began: Vec<_> =
            terms.iter().map(|term| (term.user.as_str(), term.from.as_second())).collect();
        assert_eq!(began, [("a", 1), ("b", 20), ("a", 24), ("a", 32)]);
        let found = trespasses(&entries, &terms, &users);
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "1970-01-01T00:00:23Z a: create pods/eviction l (200), 3.000 s after b took the lease",
                "1970-01-01T00:00:27Z b: patch nodes l (200), 3.000 s after a took the lease",
            ]
        );
    }

    #[test]
    fn reads_what_an_api_server_writes() {
        let line = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","stage":"ResponseComplete","auditID":"1",
            "verb":"update","user":{"username":"a","groups":["system:masters"]},"userAgent":"kerf/0.1.0",
            "objectRef":{"resource":"leases","namespace":"default","name":"l","apiGroup":"coordination.k8s.io"},
            "responseStatus":{"metadata":{},"code":200},
            "requestObject":{"kind":"Lease","spec":{"holderIdentity":"a1","leaseDurationSeconds":15}},
            "requestReceivedTimestamp":"2026-11-16T13:04:18.250000Z","stageTimestamp":"2026-11-16T13:04:18.251000Z"}"#;
        let entry = Entry::of(serde_json::from_str(line).unwrap()).unwrap();
        assert_eq!(
            (entry.user.as_str(), entry.resource.as_str(), entry.code, entry.holder.as_deref()),
            ("a", "leases", 200, Some("a1"))
        );
        assert_eq!(entry.received.to_string(), "2026-11-16T13:04:18.25Z");
    }

    #[test]
    fn a_watch_is_one_request() {
        let line = |id: &str, stage: &str| {
            format!(
                r#"{{"auditID":"{id}","stage":"{stage}","verb":"watch","user":{{"username":"a"}},"objectRef":{{"resource":"pods"}},
                "requestReceivedTimestamp":"2026-11-16T13:04:18Z","stageTimestamp":"2026-11-16T13:04:18Z"}}"#
            )
            .replace('\n', " ")
        };
        let log = [
            line("1", "ResponseStarted"),
            line("2", "ResponseStarted"),
            line("1", "ResponseComplete"),
            "{\"half".to_owned(),
        ];
        assert_eq!(entries(log.join("\n").as_bytes()).unwrap().len(), 2);
    }
}
