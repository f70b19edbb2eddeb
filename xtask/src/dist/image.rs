//! The image of the operator as an OCI image layout, from scratch: the binary, certificates, and a user without rights.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Built;
use super::tar::{Archive, Entry, gzip};
use super::version::Version;

const USER: &str = "65532:65532";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Writes the layout into `output/image`, and as one file that programs load, `kerf-VERSION-oci.tar`.
pub(super) fn write(
    output: &Path,
    version: &Version,
    certificates: &[u8],
    built: &[Built],
) -> Result<()> {
    let mut layout = Layout::default();
    let mut manifests = Vec::new();
    for one in built {
        let mut manifest =
            image(&mut layout, version, certificates, &fs::read(&one.operator)?, one)?;
        manifest["platform"] = json!({"architecture": one.architecture, "os": "linux"});
        manifests.push(manifest);
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    let mut index = layout.add_json(INDEX, &index);
    index["annotations"] = json!({"org.opencontainers.image.ref.name": version.tag()});
    let root = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [index]});
    layout.files.push(("index.json".into(), root.to_string().into_bytes()));
    layout.files.push(("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()));
    layout.files.sort();
    layout.files.dedup();

    let directory = output.join("image");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(directory.join("blobs/sha256"))?;
    let mut archive = Archive::new(version.built_at);
    for directory in ["blobs/", "blobs/sha256/"] {
        archive.add(directory, &Entry::directory())?;
    }
    for (name, bytes) in &layout.files {
        fs::write(directory.join(name), bytes)?;
        archive.add(name, &Entry::file(bytes))?;
    }
    let name = format!("kerf-{}-oci.tar", version.text);
    fs::write(output.join(name), archive.finish())?;
    Ok(())
}

/// The image of one architecture; its descriptor.
fn image(
    layout: &mut Layout,
    version: &Version,
    certificates: &[u8],
    operator: &[u8],
    built: &Built,
) -> Result<Value> {
    let mut files = Archive::new(version.built_at);
    for directory in ["etc/", "etc/ssl/", "etc/ssl/certs/", "usr/", "usr/local/", "usr/local/bin/"]
    {
        files.add(directory, &Entry::directory())?;
    }
    files.add("etc/passwd", &Entry::file(b"nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"))?;
    files.add("etc/group", &Entry::file(b"nonroot:x:65532:\n"))?;
    files.add("etc/ssl/certs/ca-certificates.crt", &Entry::file(certificates))?;
    files.add("usr/local/bin/kerf", &Entry::program(operator))?;
    let files = files.finish();
    let created = version.built_at()?.to_string();
    let config = json!({
        "created": created,
        "architecture": built.architecture,
        "os": "linux",
        "config": {
            "User": USER,
            "Entrypoint": ["/usr/local/bin/kerf"],
            "Env": ["PATH=/usr/local/bin"],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "kerf",
                "org.opencontainers.image.version": version.text,
                "org.opencontainers.image.revision": version.commit,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&files))]},
        "history": [{"created": created, "created_by": "cargo xtask dist"}],
    });
    let config = layout.add_json(CONFIG, &config);
    let layer = layout.add(LAYER, gzip(&files)?);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
    });
    Ok(layout.add_json(MANIFEST, &manifest))
}

/// The files of a layout by name.
#[derive(Default)]
struct Layout {
    files: Vec<(String, Vec<u8>)>,
}

impl Layout {
    fn add_json(&mut self, media_type: &str, value: &Value) -> Value {
        self.add(media_type, value.to_string().into_bytes())
    }

    /// The descriptor of the blob.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = sha256(&bytes);
        let size = bytes.len();
        self.files.push((format!("blobs/sha256/{digest}"), bytes));
        json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice the same, and every descriptor says the size and the digest of what it points to.
    #[test]
    fn the_layout_is_whole_and_follows_from_its_inputs() {
        let directory = tempfile::tempdir().unwrap();
        let version =
            Version { text: "1.2.3+4".into(), commit: "abc".into(), built_at: 1_700_000_000 };
        let built = ["amd64", "arm64"].map(|architecture| {
            let operator = directory.path().join(architecture);
            fs::write(&operator, architecture).unwrap();
            Built { architecture, plugin: operator.clone(), operator }
        });
        let archives = ["a", "b"].map(|name| {
            let output = directory.path().join(format!("output-{name}"));
            fs::create_dir(&output).unwrap();
            write(&output, &version, b"certificates", &built).unwrap();
            fs::read(output.join("kerf-1.2.3+4-oci.tar")).unwrap()
        });
        assert!(archives[0] == archives[1], "two runs differ");

        let image = directory.path().join("output-a/image");
        let read = |name: &str| fs::read(image.join(name)).unwrap();
        let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let bytes = read(&format!("blobs/{}", digest.replace(':', "/")));
            assert_eq!(
                (format!("sha256:{}", sha256(&bytes)), Some(bytes.len() as u64)),
                (digest.to_owned(), descriptor["size"].as_u64())
            );
            bytes
        };
        let root = parse(&read("index.json"));
        assert_eq!(
            root["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"],
            "1.2.3-4"
        );
        let index = parse(&blob(&root["manifests"][0]));
        let manifests = index["manifests"].as_array().unwrap();
        let architectures: Vec<_> =
            manifests.iter().map(|one| one["platform"]["architecture"].as_str().unwrap()).collect();
        assert_eq!(architectures, ["amd64", "arm64"]);
        for manifest in manifests {
            let manifest = parse(&blob(manifest));
            let config = parse(&blob(&manifest["config"]));
            assert_eq!(config["config"]["User"], USER);
            blob(&manifest["layers"][0]);
        }
    }
}
