//! The CRDs that the chart ships are the ones that the types generate.
//!
//! After a change of the types, `cargo xtask generate` writes them anew (by setting `KERF_WRITE_CRDS`).

use std::{collections::BTreeMap, fs, path::Path};

use kerf_api::{crd_files, crds_without_provider};
use kerf_provider_kwok::crds;

#[test]
fn chart_ships_the_generated_crds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/kerf/crds");
    let generated: BTreeMap<String, String> =
        crd_files(crds()).unwrap().into_iter().map(|file| (file.name, file.yaml)).collect();
    if std::env::var_os("KERF_WRITE_CRDS").is_some() {
        fs::create_dir_all(&directory).unwrap();
        for (name, yaml) in &generated {
            fs::write(directory.join(name), yaml).unwrap();
        }
    }
    let shipped: BTreeMap<String, String> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    let stale: Vec<&String> = generated
        .keys()
        .chain(shipped.keys())
        .filter(|name| generated.get(*name) != shipped.get(*name))
        .collect();
    assert!(
        stale.is_empty(),
        "stale in charts/kerf/crds: {stale:?}; run cargo xtask generate, and delete what is no longer generated"
    );
}

/// One of the numbers changes whenever a rule is lost: 18 and 9 are Karpenter's, the other ones the
/// KWOK provider's.
#[test]
fn every_rule_is_there() {
    let rules = |crds: Vec<_>| -> Vec<usize> {
        let yaml = |crd| serde_saphyr::to_string(&crd).unwrap();
        crds.into_iter().map(|crd| yaml(crd).matches("- message: ").count()).collect()
    };
    assert_eq!(rules(crds()), [18 + 1, 9 + 1, 0]);
    assert_eq!(rules(crds_without_provider()), [18, 9]);
}
