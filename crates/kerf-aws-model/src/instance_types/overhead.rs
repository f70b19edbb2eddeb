//! What of a node's capacity is not for pods.

use kerf_aws_api::AmiFamily;
use kerf_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use kerf_model::{Overhead, Quantity, Resources};

use super::Settings;
use super::pods::{eni_limited, pods};
use super::shape::ClassShape;
use crate::catalogue::TypeFacts;

const MIB: i64 = 1 << 20;

/// When the kubelet evicts pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Threshold {
    Amount(Quantity),
    /// Of the capacity.
    Percent(f64),
}

impl Threshold {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(number) => {
                number.parse().ok().filter(|percent: &f64| percent.is_finite()).map(Self::Percent)
            }
            None => text.parse().ok().map(Self::Amount),
        }
    }

    fn of(self, capacity: Quantity) -> Quantity {
        match self {
            Self::Amount(amount) => amount,
            // The kubelet takes 100 % for "never".
            Self::Percent(100.0) => Quantity::ZERO,
            Self::Percent(percent) => share(capacity, percent),
        }
    }
}

pub(super) fn overhead(
    facts: &TypeFacts,
    shape: &ClassShape,
    settings: &Settings,
    capacity: &Resources,
) -> Overhead {
    let eviction = |own: Option<Threshold>, name: &str, default: Threshold| {
        own.unwrap_or(default).of(capacity.amount(name))
    };
    let memory = Threshold::Amount(Quantity::from_bytes(100 * MIB));
    let storage = Threshold::Percent(10.0);
    Overhead {
        kube_reserved: kube_reserved(facts, shape, settings).overridden_by(&shape.kube_reserved),
        system_reserved: shape.system_reserved.clone(),
        eviction_threshold: Resources::new()
            .with(MEMORY, eviction(shape.eviction_memory, MEMORY, memory))
            .with(EPHEMERAL_STORAGE, eviction(shape.eviction_storage, EPHEMERAL_STORAGE, storage)),
    }
}

/// What AWS's images keep for the kubelet and the container runtime.
fn kube_reserved(facts: &TypeFacts, shape: &ClassShape, settings: &Settings) -> Resources {
    let pods = match shape.family {
        // These count the addresses of the machine, whatever the kubelet is told.
        AmiFamily::Al2 | AmiFamily::Al2023 | AmiFamily::Custom => eni_limited(facts, shape, 0, 1),
        AmiFamily::Bottlerocket
        | AmiFamily::Windows2019
        | AmiFamily::Windows2022
        | AmiFamily::Windows2025 => pods(facts, shape, settings),
    };
    Resources::new()
        .with(CPU, Quantity::from_millis(reserved_millis(facts.vcpus)))
        .with(MEMORY, Quantity::from_bytes((11 * i64::from(pods) + 255) * MIB))
        .with(EPHEMERAL_STORAGE, Quantity::from_bytes(1 << 30))
}

/// 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of all others, each in whole thousandths.
fn reserved_millis(vcpus: u32) -> i64 {
    const SLICES: [(i64, i64); 4] = [(1, 600), (1, 100), (2, 50), (i64::MAX, 25)];
    let mut left = i64::from(vcpus);
    let mut millis = 0;
    for (cores, hundredths_of_percent) in SLICES {
        let slice = left.min(cores);
        millis += slice * 1000 * hundredths_of_percent / 10_000;
        left -= slice;
    }
    millis
}

/// Rounded up to whole units.
fn share(capacity: Quantity, percent: f64) -> Quantity {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "float casts saturate, which is what is wanted"
    )]
    let units = (capacity.as_f64() / 100.0 * percent).ceil() as i64;
    match capacity.notation() {
        kerf_model::quantity::Notation::Binary => Quantity::from_bytes(units),
        _ => Quantity::from_units(units),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_cores_falls() {
        for (vcpus, millis) in
            [(1, 60), (2, 70), (4, 80), (8, 90), (16, 110), (96, 310), (192, 550), (5, 82)]
        {
            assert_eq!(reserved_millis(vcpus), millis, "{vcpus}");
        }
    }

    #[test]
    fn thresholds_are_amounts_or_shares_of_the_capacity() {
        let capacity: Quantity = "1001Mi".parse().unwrap();
        for (text, expected) in [
            ("300Mi", Some("300Mi")),
            ("5%", Some("52481229")),
            ("0%", Some("0")),
            ("100%", Some("0")),
            ("12.5%", Some("131203072")),
            ("NaN%", None),
            ("%", None),
            ("", None),
        ] {
            let found = Threshold::parse(text).map(|threshold| threshold.of(capacity));
            let expected = expected.map(|text| text.parse::<Quantity>().unwrap());
            assert_eq!(found, expected, "{text}");
        }
    }
}
