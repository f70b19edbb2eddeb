//! Feature gates: what can be switched on and off.

use std::fmt;

/// Each gate says what it lets Kerf do; a gate that is off leaves the fields that belong to it in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "gates are independent switches with names")]
pub struct FeatureGates {
    /// Replace nodes whose conditions say that they are broken.
    pub node_repair: bool,
    /// Use capacity that was reserved in advance.
    pub reserved_capacity: bool,
    /// Replace spot nodes by cheaper spot nodes.
    pub spot_to_spot_consolidation: bool,
    /// Run pools with a fixed number of nodes. On, other than in Karpenter: a pool without `replicas`
    /// is not affected.
    pub static_capacity: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            node_repair: false,
            reserved_capacity: true,
            spot_to_spot_consolidation: false,
            static_capacity: true,
        }
    }
}

/// A gate that was set and changes nothing. Deployments made for Karpenter have to start, so this is
/// something to warn of and not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IgnoredGate {
    NotYet(&'static str),
    Unknown(String),
}

impl fmt::Display for IgnoredGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotYet(name) => {
                write!(f, "feature gate {name}: Kerf does not have this feature yet")
            }
            Self::Unknown(name) => write!(f, "feature gate {name}: unknown to Kerf"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("{0:?} is not of the form name=true or name=false")]
    NotAPair(String),
    #[error("{gate} is {value:?}, expected true or false")]
    NotABool { gate: String, value: String },
}

impl FeatureGates {
    /// Every gate: its name, its default, and what it means that it is on.
    pub fn described() -> [(&'static str, bool, &'static str); 6] {
        let Self { node_repair, reserved_capacity, spot_to_spot_consolidation, static_capacity } =
            Self::default();
        let not_yet = "Nothing yet: accepted with a warning.";
        [
            (
                "NodeRepair",
                node_repair,
                "Kerf replaces nodes whose conditions say that they are broken.",
            ),
            (
                "ReservedCapacity",
                reserved_capacity,
                "Kerf uses capacity that was reserved in advance.",
            ),
            (
                "SpotToSpotConsolidation",
                spot_to_spot_consolidation,
                "Spot nodes may be replaced by cheaper spot nodes.",
            ),
            (
                "StaticCapacity",
                static_capacity,
                "NodePools with `replicas` have a fixed number of nodes.",
            ),
            ("NodeOverlay", false, not_yet),
            ("CapacityBuffer", false, not_yet),
        ]
    }

    /// Reads `NodeRepair=true,StaticCapacity=false`; gates that are not named keep their defaults.
    pub fn parse(text: &str) -> Result<(Self, Vec<IgnoredGate>), GateError> {
        let mut gates = Self::default();
        let mut ignored = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(GateError::NotAPair(pair.to_owned()));
            };
            let (name, value) = (name.trim(), value.trim());
            let on = parse_bool(value).ok_or_else(|| GateError::NotABool {
                gate: name.to_owned(),
                value: value.to_owned(),
            })?;
            match name {
                "NodeRepair" => gates.node_repair = on,
                "ReservedCapacity" => gates.reserved_capacity = on,
                "SpotToSpotConsolidation" => gates.spot_to_spot_consolidation = on,
                "StaticCapacity" => gates.static_capacity = on,
                "NodeOverlay" if on => ignored.push(IgnoredGate::NotYet("NodeOverlay")),
                "CapacityBuffer" if on => ignored.push(IgnoredGate::NotYet("CapacityBuffer")),
                "NodeOverlay" | "CapacityBuffer" => {}
                unknown => ignored.push(IgnoredGate::Unknown(unknown.to_owned())),
            }
        }
        Ok((gates, ignored))
    }
}

/// Go's `strconv.ParseBool`, which deployments rely on.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_is_described_and_known_to_the_parser() {
        let all = FeatureGates::described().map(|(gate, on, _)| format!("{gate}={on}"));
        assert_eq!(FeatureGates::parse(&all.join(",")), Ok((FeatureGates::default(), Vec::new())));
    }

    #[test]
    fn gates_are_read_as_karpenter_reads_them() {
        let none = FeatureGates::default();
        let cases = [
            ("", none),
            (" , ,", none),
            ("NodeRepair=true", FeatureGates { node_repair: true, ..none }),
            (
                " NodeRepair = T , ReservedCapacity=0,",
                FeatureGates { node_repair: true, reserved_capacity: false, ..none },
            ),
            ("StaticCapacity=false", FeatureGates { static_capacity: false, ..none }),
            ("NodeRepair=true,NodeRepair=false", none),
            (
                "NodeRepair=false,ReservedCapacity=true,SpotToSpotConsolidation=True,NodeOverlay=false,\
                 StaticCapacity=FALSE,CapacityBuffer=false",
                FeatureGates { spot_to_spot_consolidation: true, static_capacity: false, ..none },
            ),
        ];
        for (text, gates) in cases {
            assert_eq!(FeatureGates::parse(text), Ok((gates, Vec::new())), "{text:?}");
        }
    }

    #[test]
    fn static_capacity_is_on_unless_someone_says_no() {
        assert!(FeatureGates::default().static_capacity);
    }

    #[test]
    fn gates_that_kerf_does_not_have_are_accepted_and_reported() {
        let (gates, ignored) =
            FeatureGates::parse("NodeOverlay=true,CapacityBuffer=1,FromTheFuture=false").unwrap();
        assert_eq!(gates, FeatureGates::default());
        let messages: Vec<_> = ignored.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "feature gate NodeOverlay: Kerf does not have this feature yet",
                "feature gate CapacityBuffer: Kerf does not have this feature yet",
                "feature gate FromTheFuture: unknown to Kerf",
            ]
        );
    }

    #[test]
    fn malformed_gates_are_refused_by_name() {
        for (text, error) in [
            ("NodeRepair", "\"NodeRepair\" is not of the form name=true or name=false"),
            ("NodeRepair=yes", "NodeRepair is \"yes\", expected true or false"),
            ("StaticCapacity=,NodeRepair=true", "StaticCapacity is \"\", expected true or false"),
            ("FromTheFuture=maybe", "FromTheFuture is \"maybe\", expected true or false"),
        ] {
            assert_eq!(FeatureGates::parse(text).unwrap_err().to_string(), error);
        }
    }
}
