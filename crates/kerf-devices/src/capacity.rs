//! How much of a device's capacity a request gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::amount::Amount;
use crate::device::{Capacity, Kind, Policy, Portions};

/// Amounts by the name of a capacity, as the driver wrote it.
pub type Amounts = BTreeMap<Arc<str>, Amount>;

/// Why a device has not what a request asks for, whatever else uses it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    #[error("it has no {capacity}")]
    Lacks { capacity: Arc<str> },
    #[error("{asked} of {capacity} are more than the {most} that one request may have")]
    TooMuch { capacity: Arc<str>, asked: Amount, most: Amount },
    #[error("{asked} of {capacity} are not a portion that it gives")]
    NoSuchPortion { capacity: Arc<str>, asked: Amount },
}

/// What a request takes of each capacity: of those that it does not name, the default or all.
pub fn portions(kind: &Kind, asked: &Amounts) -> Result<Amounts, Misfit> {
    if let Some(capacity) = asked.keys().find(|name| !kind.capacity.contains_key(*name)) {
        return Err(Misfit::Lacks { capacity: capacity.clone() });
    }
    let portions = kind.capacity.iter().map(|(name, capacity)| {
        let portion = portion(name, capacity, asked.get(name).copied())?;
        Ok((name.clone(), portion))
    });
    portions.collect()
}

fn portion(name: &Arc<str>, capacity: &Capacity, asked: Option<Amount>) -> Result<Amount, Misfit> {
    let default = capacity.policy.as_ref().and_then(|policy| policy.default);
    let portion = match (asked, &capacity.policy) {
        (None, _) => default.unwrap_or(capacity.value),
        (Some(asked), None) => asked,
        (Some(asked), Some(policy)) => rounded(asked, &policy.portions),
    };
    let too_much = |most| Misfit::TooMuch { capacity: name.clone(), asked: portion, most };
    if default != Some(portion)
        && let Some(policy) = &capacity.policy
    {
        if let Portions::Range { max: Some(max), .. } = policy.portions
            && portion > max
        {
            return Err(too_much(max));
        }
        if !is_portion(portion, policy) {
            return Err(Misfit::NoSuchPortion { capacity: name.clone(), asked: portion });
        }
    }
    if portion > capacity.value { Err(too_much(capacity.value)) } else { Ok(portion) }
}

/// The next portion that is not less than what is asked, if there is one.
fn rounded(asked: Amount, portions: &Portions) -> Amount {
    match portions {
        Portions::Any => asked,
        Portions::Values(values) => {
            values.iter().copied().find(|value| *value >= asked).unwrap_or(asked)
        }
        Portions::Range { min, step, .. } => asked.stepped(*min, step.unwrap_or(Amount::ZERO)),
    }
}

fn is_portion(portion: Amount, policy: &Policy) -> bool {
    match &policy.portions {
        Portions::Any => true,
        Portions::Values(values) => values.contains(&portion),
        Portions::Range { min, step, .. } => {
            portion.stepped(*min, step.unwrap_or(Amount::ZERO)) == portion
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    fn range(min: &str, max: Option<&str>, step: Option<&str>) -> Portions {
        Portions::Range { min: amount(min), max: max.map(amount), step: step.map(amount) }
    }

    fn values(values: &[&str]) -> Portions {
        Portions::Values(values.iter().map(|one| amount(one)).collect())
    }

    /// A device with 40Gi, a default, and portions; what is asked; what the request gets.
    #[test]
    fn gives_portions_by_the_policy() {
        let no_policy = None;
        let any = |default: &str| Some((Some(amount(default)), Portions::Any));
        let with = |portions| Some((Some(amount("8Gi")), portions));
        let cases = [
            (no_policy.clone(), None, Some("40Gi")),
            (no_policy.clone(), Some("3Gi"), Some("3Gi")),
            (no_policy, Some("41Gi"), None),
            (any("1Gi"), None, Some("1Gi")),
            (any("1Gi"), Some("7Gi"), Some("7Gi")),
            (with(range("4Gi", Some("16Gi"), None)), None, Some("8Gi")),
            (with(range("4Gi", Some("16Gi"), None)), Some("1Gi"), Some("4Gi")),
            (with(range("4Gi", Some("16Gi"), None)), Some("5Gi"), Some("5Gi")),
            (with(range("4Gi", Some("16Gi"), None)), Some("17Gi"), None),
            (with(range("4Gi", None, Some("4Gi"))), Some("9Gi"), Some("12Gi")),
            (with(range("4Gi", Some("16Gi"), Some("8Gi"))), Some("13Gi"), None),
            (with(range("4Gi", None, Some("8Gi"))), Some("37Gi"), None),
            (with(values(&["4Gi", "8Gi", "20Gi"])), Some("1Gi"), Some("4Gi")),
            (with(values(&["4Gi", "8Gi", "20Gi"])), Some("9Gi"), Some("20Gi")),
            (with(values(&["4Gi", "8Gi", "20Gi"])), Some("21Gi"), None),
            (with(values(&["4Gi"])), None, Some("8Gi")),
        ];
        for (policy, asked, expect) in cases {
            let policy = policy.map(|(default, portions)| Policy { default, portions });
            let capacity = Capacity { value: amount("40Gi"), policy };
            let got = portion(&"memory".into(), &capacity, asked.map(amount));
            assert_eq!(got.ok(), expect.map(amount), "{capacity:?} {asked:?}");
        }
    }

    #[test]
    fn refuses_what_a_device_does_not_have() {
        let kind = Kind {
            driver: "gpu.example.com".into(),
            allows_multiple: true,
            attributes: BTreeMap::new(),
            capacity: BTreeMap::from([(
                "memory".into(),
                Capacity { value: amount("40Gi"), policy: None },
            )]),
        };
        let asked = Amounts::from([("cores".into(), amount("1"))]);
        assert_eq!(portions(&kind, &asked), Err(Misfit::Lacks { capacity: "cores".into() }));
        assert_eq!(portions(&kind, &Amounts::new()).unwrap()["memory"], amount("40Gi"));
    }
}
