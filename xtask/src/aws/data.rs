//! `cargo xtask aws data`: the documents in `crates/kerf-aws-model/data`, from files that others publish.
//!
//! Only facts are read from them: names of instance types and numbers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use kerf_aws_model::catalogue::{Document, Network, RegionPrices, RegionZones, TypeFacts};
use kerf_aws_wire::WireResponse;
use kerf_aws_wire::ec2::DescribeInstanceTypesRequest;
use kerf_model::Price;
use serde::Deserialize;
use serde_json::Value;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/kerf-aws-model/data");

#[derive(Args)]
pub(crate) struct Sources {
    /// The directory moto/ec2/resources of an unpacked moto wheel
    #[arg(long)]
    moto: PathBuf,
    #[arg(long)]
    moto_version: String,
    /// A checkout of karpenter-provider-aws
    #[arg(long)]
    karpenter: PathBuf,
    #[arg(long)]
    karpenter_commit: String,
    /// The day on which both were fetched: 2026-11-16
    #[arg(long)]
    retrieved: String,
}

pub(crate) fn run(sources: &Sources) -> Result<()> {
    let types = types(sources)?;
    let names: Vec<&str> = types.iter().map(|facts| facts.name.as_str()).collect();
    let by_moto = format!("moto {} (PyPI): answers of EC2", sources.moto_version);
    let by_karpenter = format!("karpenter-provider-aws {}", sources.karpenter_commit);
    let retrieved = || sources.retrieved.clone();
    let zones = zones(sources, &names)?;
    let document =
        Document { source: by_moto.clone(), retrieved: retrieved(), ..Document::default() };
    write("zones.json", &Document { zones, ..document.clone() })?;
    let network = network(sources)?;
    println!("{} types, {} rows about networks", types.len(), network.len());
    write("types.json", &Document { types, ..document.clone() })?;
    let document = Document { source: by_karpenter, ..document };
    write("network.json", &Document { network, ..document.clone() })?;
    for part in ["", "_us_gov", "_cn"] {
        let path = format!("pkg/providers/pricing/zz_generated.pricing_aws{part}.go");
        let text = read(&sources.karpenter.join(path))?;
        // These are older than the day they were fetched on.
        let day = text.split_once("// generated at ").and_then(|(_, rest)| rest.get(..10));
        for (region, prices) in prices(&text) {
            println!("{} prices of {region}", prices.on_demand.len());
            let document = Document {
                retrieved: day.map_or_else(retrieved, str::to_owned),
                prices: BTreeMap::from([(region.clone(), prices)]),
                ..document.clone()
            };
            write(&format!("prices/{region}.json"), &document)?;
        }
    }
    Ok(())
}

fn write(name: &str, document: &Document) -> Result<()> {
    let path = Path::new(DATA).join(name);
    fs::write(&path, document.write()).with_context(|| format!("cannot write {}", path.display()))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn unpack(path: &Path) -> Result<Vec<u8>> {
    let output = Command::new("gzip").arg("-dc").arg(path).output().context("cannot run gzip")?;
    ensure!(output.status.success(), "cannot unpack {}", path.display());
    Ok(output.stdout)
}

/// Those that can run nodes. They are read as the operator reads EC2's answers.
fn types(sources: &Sources) -> Result<Vec<TypeFacts>> {
    let json = unpack(&sources.moto.join("instance_types.json.gz"))?;
    let described: BTreeMap<String, Value> = serde_json::from_slice(&json)?;
    let mut xml = String::from("<DescribeInstanceTypesResponse><instanceTypeSet>");
    for info in described.values() {
        xml.push_str("<item>");
        write_xml(&mut xml, info);
        xml.push_str("</item>");
    }
    xml.push_str("</instanceTypeSet></DescribeInstanceTypesResponse>");
    let answer = WireResponse::decode::<DescribeInstanceTypesRequest>(&xml)?;
    let types = answer.instance_types.iter().filter_map(|info| match TypeFacts::read(info) {
        Ok(facts) => Some(facts),
        Err(error) => {
            println!("left out: {error}");
            None
        }
    });
    Ok(types.collect())
}

fn zones(sources: &Sources, names: &[&str]) -> Result<BTreeMap<String, RegionZones>> {
    let mut zones = BTreeMap::new();
    for entry in fs::read_dir(sources.moto.join("instance_type_offerings/availability-zone"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(region) = name.strip_suffix(".json.gz") else { continue };
        let listed: Vec<Offered> = serde_json::from_slice(&unpack(&path)?)?;
        let mut offered: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for one in &listed {
            offered.entry(&one.instance_type).or_default().push(&one.location);
        }
        let known = names.iter().copied();
        zones.insert(region.to_owned(), RegionZones::new(region, &offered, known));
    }
    Ok(zones)
}

/// Go maps of structs and of numbers, read line by line.
fn network(sources: &Sources) -> Result<BTreeMap<String, Network>> {
    let directory = sources.karpenter.join("pkg/providers/instancetype");
    let mut network: BTreeMap<String, Network> = BTreeMap::new();
    let mut name = String::new();
    let mut trunking = false;
    for line in read(&directory.join("zz_generated.vpclimits.go"))?.lines() {
        if let Some((quoted, _)) = line.strip_prefix("\t\"").and_then(|rest| rest.split_once('"')) {
            quoted.clone_into(&mut name);
        }
        let Some((key, value)) = line.trim().trim_end_matches(',').split_once(':') else {
            continue;
        };
        match key {
            "IsTrunkingCompatible" => trunking = value.trim() == "true",
            "BranchInterface" => {
                let branch_interfaces = if trunking { value.trim().parse()? } else { 0 };
                network.entry(name.clone()).or_default().branch_interfaces = branch_interfaces;
            }
            _ => {}
        }
    }
    for (name, number) in numbers(&read(&directory.join("zz_generated.bandwidth.go"))?) {
        network.entry(name).or_default().bandwidth_mbps = Some(number.parse()?);
    }
    network.retain(|_, one| *one != Network::default());
    Ok(network)
}

fn prices(text: &str) -> BTreeMap<String, RegionPrices> {
    // A region opens a map of its own: `"us-east-1": {`.
    let mut prices = BTreeMap::new();
    for part in text.split("\n\t\"").skip(1) {
        let Some((region, rest)) = part.split_once("\": {") else { continue };
        let currency = if region.starts_with("cn-") { "CNY" } else { "USD" };
        let on_demand = numbers(rest)
            .into_iter()
            .filter_map(|(name, price)| Some((name, price.parse::<Price>().ok()?)))
            .collect();
        prices.insert(region.to_owned(), RegionPrices { currency: currency.to_owned(), on_demand });
    }
    prices
}

/// What has the form `"name": number` and is no comment.
fn numbers(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let pairs = lines.flat_map(|line| line.split(',')).filter_map(|pair| {
        let (name, number) = pair.trim().strip_prefix('"')?.split_once("\":")?;
        let number = number.trim();
        let is_number = number.starts_with(|first: char| first.is_ascii_digit());
        is_number.then(|| (name.to_owned(), number.to_owned()))
    });
    pairs.collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Offered {
    instance_type: String,
    location: String,
}

/// JSON with EC2's names as the XML that EC2 sends: names begin with a small letter, lists are of items.
fn write_xml(xml: &mut String, value: &Value) {
    match value {
        Value::Null => {}
        Value::Array(items) => {
            for item in items {
                xml.push_str("<item>");
                write_xml(xml, item);
                xml.push_str("</item>");
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                let (first, rest) = name.split_at(1);
                let name = format!("{}{rest}", first.to_lowercase());
                let _ = write!(xml, "<{name}>");
                write_xml(xml, value);
                let _ = write!(xml, "</{name}>");
            }
        }
        Value::String(text) => xml.push_str(&text.replace('&', "&amp;").replace('<', "&lt;")),
        Value::Bool(_) | Value::Number(_) => xml.push_str(&value.to_string()),
    }
}
