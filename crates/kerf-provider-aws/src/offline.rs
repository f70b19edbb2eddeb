//! Instance types of EC2NodeClasses without an account: for `kerf plan` and `kerf explain`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
};

use jiff::Timestamp;
use kerf_api::{
    NodeClaim, NodeClass, NodePool,
    labels::{INSTANCE_TYPE, LabelRules},
};
use kerf_aws_api::{Ec2NodeClass, GROUP, KIND, Subnet, labels::label_rules};
use kerf_aws_model::{
    catalogue::{Catalogue, CatalogueError, Document, FALLBACK_REGION, Region},
    class_types::{ClassTypes, Inputs},
    drift::Drift,
    instance_types::{ClassShape, CniSettings, DiscoveredMemory, Settings},
    offerings::Market,
    prices::Prices,
    reservations::ReservationCounts,
    subnets::FreeAddresses,
    unavailable::Unavailable,
};
use kerf_model::{KnownLabels, repair::RepairPolicy};
use kerf_provider::{self as provider, CloudDrift, ForeseenDrift, Launchable, UnknownTypes};

use crate::{connection::REPAIR_POLICIES, options::Options};

/// What is known of EC2 without asking it.
pub(crate) struct OfflineCatalogue {
    rules: LabelRules,
    known: Catalogue,
    /// As the user says it.
    region: Option<String>,
    vm_memory_overhead: f64,
    reserved_enis: u32,
    ca_bundle: Option<String>,
}

/// Why there is no catalogue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OfflineError {
    #[error("the built-in catalogue of EC2 cannot be used: {0}")]
    BuiltIn(CatalogueError),
    #[error("cannot read the catalogue {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("the catalogue {path} cannot be used: {source}")]
    Document { path: String, source: CatalogueError },
    #[error("there is no region {region}; known are {known}")]
    Region { region: String, known: String },
}

/// What is built in, with the user's own document over it.
pub(crate) fn catalogue(options: &Options) -> Result<Catalogue, OfflineError> {
    let mut known = Catalogue::built_in().map_err(OfflineError::BuiltIn)?;
    if let Some(path) = &options.catalogue {
        let path = path.clone();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(OfflineError::Read { path, source }),
        };
        match Document::read(&text) {
            Ok(document) => known.lay_over(document),
            Err(source) => return Err(OfflineError::Document { path, source }),
        }
    }
    Ok(known)
}

impl OfflineCatalogue {
    pub(crate) fn new(options: &Options) -> Result<Self, OfflineError> {
        let known = catalogue(options)?;
        let unknown = options.region.as_ref().filter(|region| known.zones(region).is_none());
        if let Some(region) = unknown {
            let known = known.regions().collect::<Vec<_>>().join(", ");
            return Err(OfflineError::Region { region: region.clone(), known });
        }
        Ok(Self {
            rules: label_rules(),
            known,
            region: options.region.clone(),
            vm_memory_overhead: options.vm_memory_overhead,
            reserved_enis: options.reserved_enis,
            ca_bundle: options.cluster_ca_bundle.clone(),
        })
    }

    /// The region that the user says, or that of the class's subnets, or one that is assumed.
    fn region_of<'a>(&'a self, class: &'a Ec2NodeClass, notes: &mut Vec<String>) -> &'a str {
        if let Some(region) = &self.region {
            return region;
        }
        let subnets = class.status.iter().flat_map(|status| &status.subnets);
        let regions = || self.known.regions();
        let mut of_subnets = subnets
            .filter_map(|subnet| regions().filter(|region| subnet.zone.starts_with(region)).max());
        of_subnets.next().unwrap_or_else(|| {
            notes.push(format!(
                "no subnet says in which AWS region the nodes are; {FALLBACK_REGION} is assumed, set AWS_REGION for another"
            ));
            FALLBACK_REGION
        })
    }

    fn launchable(&self, mut class: Ec2NodeClass) -> Result<Launchable, String> {
        let mut notes = Vec::new();
        let name = self.region_of(&class, &mut notes).to_owned();
        let Some(region) = self.known.region(&name) else {
            return Err(format!("nothing is known of the region {name}"));
        };
        let subnets = &mut class.status.get_or_insert_default().subnets;
        if subnets.is_empty() {
            // As if there were one in each zone.
            subnets.extend(region.zones.iter().map(|zone| Subnet {
                id: format!("subnet-{zone}"),
                zone: zone.clone(),
                zone_id: None,
            }));
        }
        let Some(prices) = self.known.prices(&name) else {
            return Err(format!("no prices are known of the region {name}"));
        };
        if prices.region != name {
            notes.push(format!(
                "on-demand prices of {name} are not built in; those of {} stand in for them",
                prices.region
            ));
        }
        notes.push(
            "spot prices are not known here; spot is taken to cost what on demand costs".to_owned(),
        );
        let shape = ClassShape::new(&class, None).map_err(|error| error.to_string())?;
        let types = self.types(region, &shape, &Prices::new(prices));
        Ok(Launchable { types, notes })
    }

    fn types(
        &self,
        region: Region,
        shape: &ClassShape,
        prices: &Prices,
    ) -> Vec<Arc<kerf_model::InstanceType>> {
        let settings = Settings {
            region: region.name.clone(),
            vm_memory_overhead: self.vm_memory_overhead,
            reserved_enis: self.reserved_enis,
            cni: CniSettings::default(),
            reserved_capacity: true,
        };
        let market = Market {
            prices,
            unavailable: &Unavailable::default(),
            reservations: &ReservationCounts::default(),
            addresses: &FreeAddresses::default(),
            shifted_zones: &BTreeSet::new(),
            overlay_prices: &BTreeMap::new(),
            // Nothing here depends on it: there are no shortages.
            now: Timestamp::UNIX_EPOCH,
        };
        let inputs = Inputs {
            region: &Arc::new(region),
            shape,
            settings: &settings,
            memory: &DiscoveredMemory::default(),
        };
        ClassTypes::default().refresh(inputs, market).to_vec()
    }
}

impl provider::Catalogue for OfflineCatalogue {
    fn label_rules(&self) -> &LabelRules {
        &self.rules
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        REPAIR_POLICIES.to_vec()
    }

    fn instance_types(
        &self,
        pool: &NodePool,
        class: Option<&NodeClass>,
    ) -> Result<Launchable, UnknownTypes> {
        let reference = &pool.spec.template.spec.node_class_ref;
        if (reference.group.as_str(), reference.kind.as_str()) != (GROUP, KIND) {
            return Err(UnknownTypes::OtherProvider);
        }
        let of_class = |because: String| {
            UnknownTypes::NodeClass(format!("{KIND} {}: {because}", reference.name))
        };
        let class = class.ok_or_else(|| of_class("it is not among the objects".to_owned()))?;
        let class = Ec2NodeClass::read(class).map_err(|error| {
            of_class(format!("field {} cannot be read: {}", error.field, error.reason))
        })?;
        class.spec.validate().map_err(|refusal| of_class(refusal.to_string()))?;
        self.launchable(class).map_err(of_class)
    }

    fn drifted(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        types: &[Arc<kerf_model::InstanceType>],
    ) -> ForeseenDrift {
        let Ok(class) = Ec2NodeClass::read(class) else { return ForeseenDrift::default() };
        let name = claim.metadata.labels.as_ref().and_then(|labels| labels.get(INSTANCE_TYPE));
        let of_claim = name.and_then(|name| types.iter().find(|one| one.name() == name));
        let (drift, untold) = Drift::foreseen(
            claim,
            &class,
            of_claim.map(|one| &**one),
            &KnownLabels::from(&self.rules),
            self.ca_bundle.as_deref(),
        );
        ForeseenDrift {
            drift: drift
                .map(|drift| CloudDrift { reason: drift.reason(), because: drift.to_string() }),
            note: untold.map(|untold| untold.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kerf_api::labels::ZONE;
    use kerf_provider::{Catalogue as _, FlagValues};
    use serde_json::{Value, json};

    use super::*;

    fn catalogue(region: &str) -> Result<OfflineCatalogue, String> {
        let flags = FlagValues::new([("aws-region", region.to_owned())]);
        let options = Options::read(&flags).map_err(|error| error.to_string())?;
        OfflineCatalogue::new(&options).map_err(|error| error.to_string())
    }

    fn pool(kind: &str) -> NodePool {
        let mut pool = NodePool::default();
        pool.spec.template.spec.node_class_ref = kerf_api::NodeClassReference {
            group: GROUP.to_owned(),
            kind: kind.to_owned(),
            name: "default".to_owned(),
        };
        pool
    }

    fn class(changes: &Value) -> NodeClass {
        let mut class = json!({
            "metadata": {"name": "default"},
            "spec": {"role": "a", "amiSelectorTerms": [{"alias": "al2023@latest"}]},
        });
        for (field, value) in changes.as_object().unwrap() {
            class[field] = value.clone();
        }
        NodeClass::from_object(GROUP, KIND, serde_json::from_value(class).unwrap())
    }

    /// The zones in which one type can be had, and the notes.
    fn offered(region: &str, status: &Value) -> (BTreeSet<String>, Vec<String>) {
        let class = class(&json!({ "status": status }));
        let known = catalogue(region).unwrap().instance_types(&pool(KIND), Some(&class)).unwrap();
        let of_type = known.types.iter().find(|one| one.name() == "m5.large").unwrap();
        let available = of_type.offerings().iter().filter(|offering| offering.available);
        let zones = available.filter_map(|one| one.requirements.get(ZONE)?.only_value());
        (zones.map(str::to_owned).collect(), known.notes)
    }

    #[test]
    fn the_region_is_the_users_or_that_of_the_subnets_or_assumed() {
        let subnets = json!({"subnets": [
            {"id": "subnet-1", "zone": "eu-west-1a", "zoneID": "euw1-az1"},
            {"id": "subnet-2", "zone": "eu-west-1c", "zoneID": "euw1-az3"},
        ]});
        let names = |zones: &[&str]| zones.iter().map(|zone| (*zone).to_owned()).collect();
        let stand_in =
            "on-demand prices of eu-west-1 are not built in; those of us-east-1 stand in for them";
        let assumed = "no subnet says in which AWS region the nodes are; us-east-1 is assumed, set AWS_REGION for another";
        let spot = "spot prices are not known here; spot is taken to cost what on demand costs";
        let expected: BTreeSet<String> = names(&["eu-west-1a", "eu-west-1c"]);
        assert_eq!(offered("", &subnets), (expected, vec![stand_in.to_owned(), spot.to_owned()]));
        let (zones, notes) = offered("eu-west-1", &json!({}));
        assert_eq!(zones, names(&["eu-west-1a", "eu-west-1b", "eu-west-1c"]));
        assert_eq!(notes, [stand_in, spot]);
        let (zones, notes) = offered("", &json!({}));
        assert!(zones.contains("us-east-1a"), "{zones:?}");
        assert_eq!(notes, [assumed, spot]);
        let refused = catalogue("mars-north-1").err().unwrap();
        assert!(refused.starts_with("there is no region mars-north-1; known are "), "{refused}");
    }

    #[test]
    fn what_is_wrong_with_a_class_is_said() {
        let check = |pool: &NodePool, class: Option<NodeClass>, expected: &UnknownTypes| {
            let found = catalogue("").unwrap().instance_types(pool, class.as_ref());
            assert_eq!(&found.err().unwrap(), expected);
        };
        check(&pool("OtherNodeClass"), None, &UnknownTypes::OtherProvider);
        let because = |because: &str| UnknownTypes::NodeClass(because.to_owned());
        check(&pool(KIND), None, &because("EC2NodeClass default: it is not among the objects"));
        let sized =
            class(&json!({"spec": {"blockDeviceMappings": [{"ebs": {"volumeSize": "Ti"}}]}}));
        check(
            &pool(KIND),
            Some(sized),
            &because(
                "EC2NodeClass default: field spec.blockDeviceMappings[0].ebs.volumeSize cannot be read: \
                 \"Ti\" is not the size of a volume; write it like 100Gi, 100G, 1Ti or 1T",
            ),
        );
        let kubelet =
            class(&json!({"spec": {"kubelet": {"evictionHard": {"memory.available": ""}}}}));
        check(
            &pool(KIND),
            Some(kubelet),
            &because(
                "EC2NodeClass default: spec.kubelet.evictionHard.memory.available: \"\" is neither a percentage from \
                 0% to 100% nor a quantity that is zero or more",
            ),
        );
    }
}
