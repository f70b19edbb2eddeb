use kerf_aws_api::Ec2NodeClassSpec;
use kerf_aws_wire::ec2::Filter;
use kerf_model::{Offering, Overhead, Resources};
use serde_json::{Value, json};

use super::*;

fn plan(terms: &Value, version: &str) -> Result<ImagePlan, UnsupportedAlias> {
    let spec: Ec2NodeClassSpec =
        serde_json::from_value(json!({ "amiSelectorTerms": terms })).unwrap();
    ImagePlan::new(&spec, version)
}

fn parameters(alias: &str, version: &str) -> Vec<String> {
    let plan = plan(&json!([{ "alias": alias }]), version).unwrap();
    plan.parameters().iter().map(|parameter| parameter.name.clone()).collect()
}

#[test]
fn an_alias_stands_for_parameters_of_ssm() {
    let al2023 = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023";
    assert_eq!(
        parameters("al2023@latest", "1.33"),
        ["x86_64/standard", "x86_64/nvidia", "x86_64/neuron", "arm64/standard", "arm64/nvidia"]
            .map(|variant| format!("{al2023}/{variant}/recommended/image_id"))
    );
    assert_eq!(
        parameters("al2023@v20240625", "1.33")[2],
        format!(
            "{al2023}/x86_64/neuron/amazon-eks-node-al2023-x86_64-neuron-1.33-v20240625/image_id"
        )
    );
    let al2 = "/aws/service/eks/optimized-ami/1.32/amazon-linux-2";
    assert_eq!(
        parameters("al2@latest", "1.32"),
        ["", "-arm64", "-gpu"].map(|kind| format!("{al2}{kind}/recommended/image_id"))
    );
    assert_eq!(
        parameters("al2@v20240625", "1.32"),
        ["", "-arm64", "-gpu"]
            .map(|kind| format!("{al2}{kind}/amazon-eks{kind}-node-1.32-v20240625/image_id"))
    );
    let bottlerocket = "/aws/service/bottlerocket/aws-k8s-1.33";
    assert_eq!(
        parameters("bottlerocket@v1.46.0", "1.33"),
        ["/x86_64", "/arm64", "-nvidia/x86_64", "-nvidia/arm64"]
            .map(|kind| format!("{bottlerocket}{kind}/1.46.0/image_id"))
    );
    assert_eq!(
        parameters("bottlerocket@latest", "1.33")[0],
        format!("{bottlerocket}/x86_64/latest/image_id")
    );
    assert_eq!(
        parameters("windows2022@latest", "1.33"),
        [
            "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.33/image_id"
        ]
    );
}

#[test]
fn aliases_that_aws_has_no_images_for_are_refused() {
    for (alias, version, supported) in [
        ("al2@latest", "1.32", true),
        ("al2@latest", "1.33", false),
        ("windows2025@latest", "1.34", false),
        ("windows2025@latest", "1.35", true),
        ("al2023@latest", "1.40", true),
    ] {
        assert_eq!(
            plan(&json!([{ "alias": alias }]), version).is_ok(),
            supported,
            "{alias} {version}"
        );
    }
}

fn asked(query: &ImageQuery) -> (Vec<String>, Vec<String>) {
    let request = query.request();
    assert_eq!((request.include_deprecated, request.max_results), (Some(true), Some(1000)));
    let filter = |filter: Filter| format!("{}={}", filter.name.unwrap(), filter.values.join("|"));
    (request.filters.into_iter().map(filter).collect(), request.owners)
}

#[test]
fn terms_become_queries() {
    let check = |term: Value, filters: &[&str], owners: &[&str]| {
        let plan = plan(&json!([term]), "1.33").unwrap();
        let resolved = plan.resolve(&BTreeMap::new());
        assert_eq!(resolved.queries.len(), 1, "{term}");
        let (asked, by) = asked(&resolved.queries[0]);
        assert_eq!((asked, by), (owned(filters), owned(owners)), "{term}");
    };
    let state = "state=available";
    check(json!({"id": "ami-1"}), &["image-id=ami-1", state], &[]);
    check(json!({"name": "a-*"}), &["name=a-*", state], &["self", "amazon"]);
    check(json!({"name": "a", "owner": "123"}), &["name=a", state], &["123"]);
    check(json!({"tags": {"a": "*", "b": "c"}}), &["tag-key=a", "tag:b=c", state], &[]);
    check(json!({"tags": {"a": "b"}, "owner": "self"}), &["tag:a=b", state], &["self"]);
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn ids_and_parameters_are_one_query() {
    let terms = json!([{"id": "ami-2"}, {"ssmParameter": "/a"}, {"ssmParameter": "/b"}, {"ssmParameter": "/c"}]);
    let plan = plan(&terms, "1.33").unwrap();
    assert!(plan.parameters().iter().all(|parameter| parameter.origin == Origin::User));
    let values =
        [("/a", "ami-1"), ("/b", "none")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let resolved = plan.resolve(&values.into());
    assert_eq!(asked(&resolved.queries[0]).0, ["image-id=ami-1|ami-2", "state=available"]);
    assert_eq!(
        resolved.skipped,
        [
            Skipped::NotAnId { name: "/b".to_owned(), value: "none".to_owned() },
            Skipped::NotFound("/c".to_owned()),
        ]
    );
    let nothing =
        self::plan(&json!([{"alias": "al2023@latest"}]), "1.33").unwrap().resolve(&BTreeMap::new());
    assert_eq!(nothing, Resolved { queries: vec![], skipped: vec![] });
}

fn image(id: &str, architecture: &str, created: &str, deprecated: &str) -> Image {
    Image {
        image_id: Some(id.to_owned()),
        name: Some(format!("name-{id}")),
        architecture: Some(architecture.to_owned()),
        creation_date: Some(created.to_owned()).filter(|text| !text.is_empty()),
        deprecation_time: Some(deprecated.to_owned()).filter(|text| !text.is_empty()),
        ..Image::default()
    }
}

fn now() -> Timestamp {
    "2026-11-16T12:00:00Z".parse().unwrap()
}

fn listed(amis: &[Ami]) -> Vec<String> {
    let requirement = |one: &NodeSelectorRequirement| {
        let key = one.key.rsplit('/').next().unwrap();
        format!(
            "{key} {} {}",
            one.operator,
            one.values.iter().flatten().cloned().collect::<String>()
        )
        .trim_end()
        .to_owned()
    };
    amis.iter()
        .map(|ami| {
            let all: Vec<_> = ami.requirements.iter().map(requirement).collect();
            format!("{}{}: {}", ami.id, if ami.deprecated { "!" } else { "" }, all.join(", "))
        })
        .collect()
}

#[test]
fn of_images_for_the_same_machines_the_best_is_taken() {
    let query = ImageQuery::default();
    let check = |images: &[Image], expected: &[&str]| {
        let chosen = choose(images.iter().map(|image| (&query, image)), now());
        assert_eq!(listed(&chosen), expected);
        let mut reversed = images.to_vec();
        reversed.reverse();
        assert_eq!(choose(reversed.iter().map(|image| (&query, image)), now()), chosen);
    };
    let (older, newer) = ("2026-01-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z");
    let x86 = |id, created, deprecated| image(id, "x86_64", created, deprecated);
    check(&[x86("ami-1", older, ""), x86("ami-2", newer, "")], &["ami-2: arch In amd64"]);
    // The deprecated one is newer.
    check(&[x86("ami-1", older, ""), x86("ami-2", newer, older)], &["ami-1: arch In amd64"]);
    check(&[x86("ami-1", older, older), x86("ami-2", newer, older)], &["ami-2!: arch In amd64"]);
    check(&[x86("ami-1", older, "2026-11-16T12:00:00Z")], &["ami-1!: arch In amd64"]);
    check(&[x86("ami-1", older, "2026-11-16T12:00:01Z")], &["ami-1: arch In amd64"]);
    // Equally old: the higher name.
    check(&[x86("ami-1", older, ""), x86("ami-2", older, "")], &["ami-2: arch In amd64"]);
    check(&[x86("ami-1", "", ""), x86("ami-2", older, "")], &["ami-2: arch In amd64"]);
    check(
        &[
            x86("ami-1", older, ""),
            image("ami-2", "arm64", newer, ""),
            image("ami-3", "i386", newer, ""),
        ],
        &["ami-2: arch In arm64", "ami-1: arch In amd64"],
    );
}

fn al2() -> Vec<Ami> {
    let plan = plan(&json!([{"alias": "al2@latest"}]), "1.32").unwrap();
    let ids = ["ami-plain", "ami-arm", "ami-gpu"];
    let values = plan
        .parameters()
        .iter()
        .zip(ids)
        .map(|(parameter, id)| (parameter.name.clone(), id.to_owned()));
    let query = plan.resolve(&values.collect()).queries.remove(0);
    let images = [("ami-plain", "x86_64"), ("ami-arm", "arm64"), ("ami-gpu", "x86_64")]
        .map(|(id, architecture)| image(id, architecture, "2026-01-01T00:00:00Z", ""));
    choose(images.iter().map(|image| (&query, image)), now())
}

#[test]
fn one_image_may_be_for_several_kinds_of_machines() {
    assert_eq!(
        listed(&al2()),
        [
            "ami-arm: arch In arm64, instance-gpu-count DoesNotExist, instance-accelerator-count DoesNotExist",
            "ami-gpu: arch In amd64, instance-accelerator-count Exists",
            "ami-gpu: arch In amd64, instance-gpu-count Exists",
            "ami-plain: arch In amd64, instance-gpu-count DoesNotExist, instance-accelerator-count DoesNotExist",
        ]
    );
}

#[test]
fn a_type_gets_the_first_image_that_suits_it() {
    let labels = KnownLabels::from(&kerf_aws_api::labels::label_rules());
    let images = Images::new(&al2(), &labels);
    let machine = |architecture: &str, gpus: Option<&str>, accelerators: Option<&str>| {
        let count = |key: &str, value: Option<&str>| match value {
            Some(value) => Requirement::is_in(key, [value]),
            None => Requirement::does_not_exist(key),
        };
        let requirements = Requirements::new([
            Requirement::is_in(ARCH, [architecture]),
            count(kerf_aws_api::labels::INSTANCE_GPU_COUNT, gpus),
            count(kerf_aws_api::labels::INSTANCE_ACCELERATOR_COUNT, accelerators),
        ]);
        let nothing = (Vec::<Offering>::new(), Resources::new(), Overhead::default());
        InstanceType::new("a", requirements, nothing.0, nothing.1, nothing.2)
    };
    for (machine, expected) in [
        (machine("amd64", None, None), Some("ami-plain")),
        (machine("arm64", None, None), Some("ami-arm")),
        (machine("amd64", Some("1"), None), Some("ami-gpu")),
        (machine("amd64", None, Some("2")), Some("ami-gpu")),
        (machine("arm64", Some("1"), None), None),
    ] {
        assert_eq!(images.of(&machine), expected, "{:?}", machine.requirements());
    }
}
