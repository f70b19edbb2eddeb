//! The list of what is in the binaries, as `CycloneDX`: what cargo resolves for the operator and the plugin, with the checksums of
//! Cargo.lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::version::Version;
use crate::cargo::{cargo, workspace};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// Of the plugin, which has all that the operator has. Build scripts and tests are not in it.
pub(super) fn cyclonedx(version: &Version) -> Result<Value> {
    let mut command = cargo(&["metadata", "--format-version", "1", "--locked"]);
    command.args(["--manifest-path", "crates/kerf/Cargo.toml", "--features", "aws"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-musl"]);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {said}");
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let checksums = checksums(&fs::read_to_string(workspace().join("Cargo.lock"))?);
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (&*package.id, package)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (&*node.id, node)).collect();
    let kerf = packages.values().find(|package| package.name == "kerf").context("no kerf")?;

    let mut dependencies: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut open = vec![&*kerf.id];
    while let Some(id) = open.pop() {
        if dependencies.contains_key(id) {
            continue;
        }
        let of_node = nodes.get(id).map_or(&[][..], |node| &node.deps);
        let linked = of_node.iter().filter(|one| one.dep_kinds.iter().any(|it| it.kind.is_none()));
        let linked: BTreeSet<&str> = linked.map(|one| &*one.pkg).collect();
        open.extend(&linked);
        dependencies.insert(id, linked);
    }

    let url = |id: &str| packages.get(id).map(|package| package.url()).unwrap_or_default();
    let components = dependencies.keys().filter(|id| **id != kerf.id);
    let components: Vec<Value> = components
        .filter_map(|id| packages.get(id))
        .map(|package| package.component(&checksums))
        .collect();
    let graph: Vec<Value> = dependencies
        .iter()
        .map(|(id, on)| {
            let on: Vec<_> = on.iter().map(|id| url(id)).collect();
            json!({"ref": url(id), "dependsOn": on})
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": version.built_at()?.to_string(),
            "component": {
                "type": "application", "name": "kerf", "version": version.text, "bom-ref": kerf.url(),
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": graph,
    }))
}

impl Package {
    /// As package URLs are written.
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version.replace('+', "%2B"))
    }

    fn component(&self, checksums: &BTreeMap<(String, String), String>) -> Value {
        let mut component = json!({
            "type": "library", "name": self.name, "version": self.version, "bom-ref": self.url(),
        });
        if let Some(license) = &self.license {
            // What cargo wrote before it knew SPDX.
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        if let Some(description) = &self.description {
            component["description"] =
                description.split_whitespace().collect::<Vec<_>>().join(" ").into();
        }
        if self.source.is_some() {
            component["purl"] = self.url().into();
        }
        let key = (self.name.clone(), self.version.clone());
        if let Some(checksum) = checksums.get(&key) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        component
    }
}

/// By name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let packages = lock.split("[[package]]").skip(1);
    let field = |package: &str, name: &str| {
        let mut lines = package.lines();
        lines.find_map(|line| {
            Some(line.strip_prefix(name)?.trim_matches([' ', '=', '"']).to_owned())
        })
    };
    packages
        .filter_map(|one| {
            let key = (field(one, "name")?, field(one, "version")?);
            Some((key, field(one, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_what_is_linked_and_nothing_else() {
        let version =
            Version { text: "1.2.3".into(), commit: "abc".into(), built_at: 1_700_000_000 };
        let sbom = cyclonedx(&version).unwrap();
        let components = sbom["components"].as_array().unwrap();
        let named = |name: &str| components.iter().find(|one| one["name"] == name);
        let ring = named("ring").expect("ring is linked");
        assert_eq!(ring["hashes"][0]["content"].as_str().map(str::len), Some(64));
        assert!(named("kerf-provider-aws").is_some());
        // A dependency of tests, one of build scripts, and one of another system.
        for name in ["insta", "cc", "windows-sys"] {
            assert!(named(name).is_none(), "{name} is not linked");
        }
        let without: Vec<_> = components.iter().filter(|one| one["licenses"].is_null()).collect();
        assert!(without.is_empty(), "without a licence: {without:?}");
    }
}
