//! `cargo xtask aws data`: the documents in `crates/kerf-aws-model/data`, from files that others publish.
//!
//! Only facts are read from them: names of instance types and numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use kerf_aws_model::catalogue::{
    Accelerator, Architecture, Document, Gpu, Network, Neuron, RegionPrices, RegionZones, Trait,
    TypeFacts,
};
use kerf_model::Price;
use serde::Deserialize;

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

/// Those that the provider would ask EC2 for: with hardware virtualisation, on an architecture of Kubernetes.
fn types(sources: &Sources) -> Result<Vec<TypeFacts>> {
    let json = unpack(&sources.moto.join("instance_types.json.gz"))?;
    let described: BTreeMap<String, Described> = serde_json::from_slice(&json)?;
    Ok(described.into_values().filter_map(Described::facts).collect())
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

/// An entry of EC2's `DescribeInstanceTypes` in JSON, as far as it is needed.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Described {
    instance_type: String,
    v_cpu_info: Vcpus,
    memory_info: Memory,
    processor_info: Processor,
    hypervisor: Option<String>,
    supported_usage_classes: Vec<String>,
    supported_virtualization_types: Vec<String>,
    nitro_enclaves_support: String,
    ebs_info: Ebs,
    instance_storage_info: Option<Storage>,
    placement_group_info: Placement,
    network_info: Networking,
    gpu_info: Option<Gpus>,
    neuron_info: Option<Neurons>,
    inference_accelerator_info: Option<Accelerators>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Vcpus {
    #[serde(rename = "DefaultVCpus")]
    default: u32,
}

#[derive(Deserialize)]
struct Memory {
    #[serde(rename = "SizeInMiB")]
    mib: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Processor {
    manufacturer: String,
    supported_architectures: Vec<String>,
    #[serde(default)]
    supported_features: Vec<String>,
    sustained_clock_speed_in_ghz: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Ebs {
    ebs_optimized_support: String,
    ebs_optimized_info: Option<EbsOptimized>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EbsOptimized {
    maximum_bandwidth_in_mbps: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Storage {
    nvme_support: String,
    #[serde(rename = "TotalSizeInGB")]
    total_gb: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Placement {
    supported_strategies: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Networking {
    default_network_card_index: usize,
    efa_info: Option<Efa>,
    ena_support: String,
    encryption_in_transit_supported: bool,
    ipv4_addresses_per_interface: u32,
    network_cards: Vec<Card>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Efa {
    maximum_efa_interfaces: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Card {
    maximum_network_interfaces: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Gpus {
    gpus: Vec<Device>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Neurons {
    neuron_devices: Vec<Device>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Accelerators {
    accelerators: Vec<Device>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Device {
    name: String,
    #[serde(default)]
    manufacturer: String,
    count: u32,
    memory_info: Option<Memory>,
    core_info: Option<Cores>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Cores {
    count: u32,
}

impl Described {
    /// None for what the provider would not ask EC2 for.
    fn facts(self) -> Option<TypeFacts> {
        let architectures = &self.processor_info.supported_architectures;
        let architecture = architectures.iter().find_map(|name| Architecture::from_ec2(name))?;
        if !self.supported_virtualization_types.iter().any(|kind| kind == "hvm") {
            return None;
        }
        let clock_mhz = self.processor_info.sustained_clock_speed_in_ghz.unwrap_or(0.0) * 1000.0;
        let ebs = self.ebs_info.ebs_optimized_info.as_ref();
        let devices = |list: Option<Vec<Device>>| list.unwrap_or_default().into_iter();
        Some(TypeFacts {
            traits: self.traits().into_iter().collect(),
            name: self.instance_type,
            architecture,
            vcpus: self.v_cpu_info.default,
            memory_mib: self.memory_info.mib,
            cpu_manufacturer: self.processor_info.manufacturer,
            clock_mhz: format!("{clock_mhz:.0}").parse().ok()?,
            hypervisor: self.hypervisor.unwrap_or_default(),
            ebs_mbps: ebs
                .filter(|_| self.ebs_info.ebs_optimized_support == "default")
                .map(|ebs| ebs.maximum_bandwidth_in_mbps),
            local_gb: self.instance_storage_info.map_or(0, |storage| storage.total_gb),
            addresses_per_interface: self.network_info.ipv4_addresses_per_interface,
            interfaces_per_card: self
                .network_info
                .network_cards
                .iter()
                .map(|card| card.maximum_network_interfaces)
                .collect(),
            default_card: self.network_info.default_network_card_index,
            efa_interfaces: self.network_info.efa_info.map_or(0, |efa| efa.maximum_efa_interfaces),
            gpus: devices(self.gpu_info.map(|info| info.gpus))
                .map(|gpu| Gpu {
                    name: gpu.name,
                    manufacturer: gpu.manufacturer,
                    count: gpu.count,
                    memory_mib: gpu.memory_info.map_or(0, |memory| memory.mib),
                })
                .collect(),
            neurons: devices(self.neuron_info.map(|info| info.neuron_devices))
                .map(|neuron| Neuron {
                    name: neuron.name,
                    count: neuron.count,
                    cores: neuron.core_info.map_or(0, |cores| cores.count),
                })
                .collect(),
            accelerators: devices(self.inference_accelerator_info.map(|info| info.accelerators))
                .map(|one| Accelerator {
                    name: one.name,
                    manufacturer: one.manufacturer,
                    count: one.count,
                })
                .collect(),
        })
    }

    fn traits(&self) -> Vec<Trait> {
        let names = |list: &[String], name: &str| list.iter().any(|one| one == name);
        let usage = |name| names(&self.supported_usage_classes, name);
        let placement = |name| names(&self.placement_group_info.supported_strategies, name);
        let storage = self.instance_storage_info.as_ref();
        let features = &self.processor_info.supported_features;
        [
            (Trait::OnDemand, usage("on-demand")),
            (Trait::Spot, usage("spot")),
            (Trait::CapacityBlock, usage("capacity-block")),
            (Trait::EncryptionInTransit, self.network_info.encryption_in_transit_supported),
            (Trait::NitroEnclaves, self.nitro_enclaves_support == "supported"),
            (Trait::LocalNvme, storage.is_some_and(|one| one.nvme_support != "unsupported")),
            (Trait::EnaUnsupported, self.network_info.ena_support == "unsupported"),
            (Trait::NestedVirtualization, names(features, "nested-virtualization")),
            (Trait::ClusterPlacement, placement("cluster")),
            (Trait::PartitionPlacement, placement("partition")),
            (Trait::SpreadPlacement, placement("spread")),
        ]
        .into_iter()
        .filter_map(|(one, holds)| holds.then_some(one))
        .collect()
    }
}
