//! docs/troubleshooting.md explains every reason that the code names.
//!
//! Reasons are read from the sources: a text in CamelCase is one, unless the table below says what else it is; so a new reason
//! cannot be forgotten. The names of `Blocked` are the snake-case texts of its file.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Files and directories below `crates` with conditions, events and refusals.
const IN_CAMEL_CASE: [&str; 12] = [
    "kerf-api/src/conditions.rs",
    "kerf-aws-api/src/conditions.rs",
    "kerf-aws-model/src/drift.rs",
    "kerf-aws-model/src/health.rs",
    "kerf-aws-model/src/messages.rs",
    "kerf-cluster/src/overlays.rs",
    "kerf-cluster/src/validation.rs",
    "kerf-controllers/src",
    "kerf-disruption/src",
    "kerf-model/src/snapshot.rs",
    "kerf-provider-aws/src/controllers",
    "kerf-scheduler/src/refusal.rs",
];
/// Here only the names of variants: the other texts are AWS's codes.
const VARIANTS: &str = "kerf-aws-model/src/errors.rs";
const IN_SNAKE_CASE: [&str; 3] = [
    "kerf-disruption/src/blocked.rs",
    "kerf-disruption/src/static_capacity.rs",
    "kerf-disruption/src/terminate_first.rs",
];

/// What else is written in CamelCase.
const NO_REASONS: [(&str, &str); 8] = [
    ("a kind", "Connection Index Node NodeClaim NodePool Operator Rooms Shared State"),
    (
        "a feature gate",
        "CapacityBuffer NodeOverlay NodeRepair PodDeletionCostManagement ReservedCapacity SpotToSpotConsolidation \
         StaticCapacity TerminateFirstDrift TerminateFirstRepair",
    ),
    (
        "a call of a provider",
        "Create Delete Get GetInstanceTypes IsDrifted Lead List Reboot Registering Start",
    ),
    (
        "the label `error` of a metric",
        "NodeClaimNotFoundError NodeClassNotFoundError NodeClassNotReadyError NotLeadingError RebootNotImplementedError \
         RebootRejectedError ThrottledError UnauthorizedError",
    ),
    (
        "a value of Kubernetes' own fields",
        "DoNotSchedule False Honor Ignore In Pending ScheduleAnyway True Unknown",
    ),
    ("a policy or method", "Balanced Consolidation Drift Emptiness Expired Repair"),
    ("a status check of EC2", "EventStatus InstanceStatus SystemStatus"),
    ("another name of a call or answer", "InvalidUserData"),
];

#[test]
fn every_reason_has_a_row_in_the_documentation() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let page = fs::read_to_string(crates.join("../docs/troubleshooting.md")).unwrap();
    let explained: BTreeSet<&str> =
        page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    let no_reasons: BTreeSet<&str> =
        NO_REASONS.iter().flat_map(|(_, names)| names.split_whitespace()).collect();

    let mut missing = BTreeMap::new();
    let mut found = 0;
    for (name, file) in reasons(&crates) {
        if no_reasons.contains(&*name) {
            continue;
        }
        found += 1;
        if !explained.contains(&*name) {
            missing.insert(name, file);
        }
    }
    assert!(found > 150, "only {found} reasons were found: the sources are read wrongly");
    assert!(
        missing.is_empty(),
        "docs/troubleshooting.md does not explain {missing:#?}; add a row that says what it means and what to do, or, if it is \
         no reason, a word to NO_REASONS in xtask/tests/reasons.rs"
    );
}

/// Every reason, and a file that names it.
fn reasons(crates: &Path) -> BTreeMap<String, String> {
    let mut reasons = BTreeMap::new();
    let mut add = |path: &Path, is_reason: fn(&str) -> bool, arms_only: bool| {
        let file = path.strip_prefix(crates).unwrap().display().to_string();
        for text in texts(path, arms_only).into_iter().filter(|text| is_reason(text)) {
            reasons.insert(text, file.clone());
        }
    };
    for path in IN_CAMEL_CASE.iter().flat_map(|path| files(&crates.join(path))) {
        add(&path, is_camel_case, false);
    }
    add(&crates.join(VARIANTS), is_camel_case, true);
    for path in IN_SNAKE_CASE {
        add(&crates.join(path), is_snake_case, true);
    }
    reasons
}

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| !path.ends_with("tests.rs") && !path.ends_with("tests"));
    entries.flat_map(|path| files(&path)).collect()
}

/// The texts of a source before its tests; or only those that an arm of a `match` is.
fn texts(path: &Path, arms_only: bool) -> Vec<String> {
    let source = fs::read_to_string(path).unwrap();
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut texts = Vec::new();
    let mut after_arm = false;
    for line in lines {
        for (place, part) in line.split('"').enumerate() {
            if place % 2 == 1 && (!arms_only || after_arm) {
                texts.push(part.to_owned());
            }
            after_arm = part.trim_end().ends_with("=>") || part.trim_end().ends_with("=> {");
        }
    }
    texts
}

fn is_camel_case(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|first| first.is_ascii_uppercase())
        && text.chars().all(|character| character.is_ascii_alphabetic())
        && text.chars().any(|character| character.is_ascii_lowercase())
}

fn is_snake_case(text: &str) -> bool {
    text.chars().next().is_some_and(|first| first.is_ascii_lowercase())
        && text.chars().all(|character| character.is_ascii_lowercase() || character == '_')
}
