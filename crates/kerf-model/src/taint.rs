//! Taints of nodes and tolerations of pods.

use std::fmt;

use k8s_openapi::api::core::v1 as k8s;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Toleration {
    /// No key tolerates every key.
    pub key: Option<String>,
    pub operator: TolerationOperator,
    pub value: String,
    /// No effect tolerates every effect.
    pub effect: Option<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TolerationOperator {
    Equal,
    Exists,
    /// The taint's value is a number below the toleration's.
    Lt,
    /// The taint's value is a number above the toleration's.
    Gt,
}

impl Taint {
    pub fn new(key: &str, value: &str, effect: Effect) -> Self {
        Self { key: key.to_owned(), value: value.to_owned(), effect }
    }

    /// Taints are the same when key and effect are, whatever the value.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl Toleration {
    /// Tolerates taints that only ask to be avoided.
    pub fn prefer_no_schedule() -> Self {
        Self {
            key: None,
            operator: TolerationOperator::Exists,
            value: String::new(),
            effect: Some(Effect::PreferNoSchedule),
        }
    }

    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) {
            return false;
        }
        if self.key.as_ref().is_some_and(|key| *key != taint.key) {
            return false;
        }
        let numbers = || Some((taint.value.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        match self.operator {
            TolerationOperator::Exists => true,
            // Without a key only `Exists` is valid; the API server rejects the rest.
            TolerationOperator::Equal => self.key.is_some() && self.value == taint.value,
            TolerationOperator::Lt => numbers().is_some_and(|(taint, limit)| taint < limit),
            TolerationOperator::Gt => numbers().is_some_and(|(taint, limit)| taint > limit),
        }
    }
}

/// The first taint that nothing tolerates. Taints with the effect `PreferNoSchedule` count like the rest:
/// preferences are hard until they are relaxed.
pub fn first_untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints.iter().find(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

pub fn tolerates_all(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    first_untolerated(taints, tolerations).is_none()
}

/// The first taint that nothing tolerates, apart from those that only ask to be avoided.
pub fn first_hard_untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
) -> Option<&'a Taint> {
    let mut hard = taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
    hard.find(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if !self.value.is_empty() {
            write!(f, "={}", self.value)?;
        }
        write!(f, ":{}", self.effect.as_str())
    }
}

impl Effect {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// Unknown effects are refused by the API server; one that gets through is taken as the strictest.
    pub fn parse(text: &str) -> Self {
        match text {
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => Self::NoSchedule,
        }
    }
}

impl From<&k8s::Taint> for Taint {
    fn from(taint: &k8s::Taint) -> Self {
        Self {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: Effect::parse(&taint.effect),
        }
    }
}

impl From<&Taint> for k8s::Taint {
    fn from(taint: &Taint) -> Self {
        Self {
            key: taint.key.clone(),
            value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
            effect: taint.effect.as_str().to_owned(),
            ..Self::default()
        }
    }
}

impl From<&k8s::Toleration> for Toleration {
    fn from(toleration: &k8s::Toleration) -> Self {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Self {
            key: given(&toleration.key),
            operator: match toleration.operator.as_deref() {
                Some("Exists") => TolerationOperator::Exists,
                Some("Lt") => TolerationOperator::Lt,
                Some("Gt") => TolerationOperator::Gt,
                _ => TolerationOperator::Equal,
            },
            value: toleration.value.clone().unwrap_or_default(),
            effect: given(&toleration.effect).as_deref().map(Effect::parse),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(
        key: &str,
        operator: TolerationOperator,
        value: &str,
        effect: &str,
    ) -> Toleration {
        Toleration {
            key: Some(key.to_owned()).filter(|key| !key.is_empty()),
            operator,
            value: value.to_owned(),
            effect: (!effect.is_empty()).then(|| Effect::parse(effect)),
        }
    }

    #[test]
    fn tolerates_by_key_value_effect_and_number() {
        use TolerationOperator::{Equal, Exists, Gt, Lt};
        let taint = Taint::new("team", "7", Effect::NoSchedule);
        for (toleration, tolerated) in [
            (toleration("team", Equal, "7", "NoSchedule"), true),
            (toleration("team", Equal, "7", ""), true),
            (toleration("team", Equal, "8", ""), false),
            (toleration("other", Equal, "7", ""), false),
            (toleration("team", Equal, "7", "NoExecute"), false),
            (toleration("team", Exists, "", ""), true),
            (toleration("", Exists, "", ""), true),
            (toleration("", Exists, "", "NoExecute"), false),
            (toleration("", Equal, "7", ""), false),
            (toleration("team", Lt, "8", ""), true),
            (toleration("team", Lt, "7", ""), false),
            (toleration("team", Gt, "6", ""), true),
            (toleration("team", Gt, "7", ""), false),
            (toleration("team", Gt, "x", ""), false),
            (toleration("", Gt, "6", ""), true),
        ] {
            assert_eq!(toleration.tolerates(&taint), tolerated, "{toleration:?}");
        }
        let word = Taint::new("team", "a", Effect::NoSchedule);
        assert!(!toleration("team", Gt, "6", "").tolerates(&word));
    }

    #[test]
    fn preferring_taints_are_hard_until_tolerated() {
        let taints = [Taint::new("soft", "", Effect::PreferNoSchedule)];
        assert!(!tolerates_all(&taints, &[]));
        assert!(tolerates_all(&taints, &[Toleration::prefer_no_schedule()]));
        assert!(tolerates_all(&[], &[]));
        assert_eq!(first_hard_untolerated(&taints, &[]), None);
        let hard = [taints[0].clone(), Taint::new("hard", "", Effect::NoExecute)];
        assert_eq!(first_hard_untolerated(&hard, &[]), Some(&hard[1]));
        assert_eq!(
            first_untolerated(&taints, &[]).map(ToString::to_string).as_deref(),
            Some("soft:PreferNoSchedule")
        );
    }
}
