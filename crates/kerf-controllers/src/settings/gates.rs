//! Feature gates: what can be switched on and off.

use std::fmt;

/// What can be switched on and off, in Karpenter's order. Defaults, parsing, the text of the flag and the table in
/// docs/configuration.md follow from this list.
pub const GATES: [Gate; 9] = [
    Gate {
        name: "NodeRepair",
        default: false,
        stage: Stage::Alpha,
        help: "Kerf replaces nodes whose conditions say that they are broken",
        switch: |gates| &mut gates.node_repair,
    },
    Gate {
        name: "ReservedCapacity",
        default: true,
        stage: Stage::Beta,
        help: "Kerf uses capacity that was reserved in advance",
        switch: |gates| &mut gates.reserved_capacity,
    },
    Gate {
        name: "SpotToSpotConsolidation",
        default: false,
        stage: Stage::Alpha,
        help: "Spot nodes may be replaced by cheaper spot nodes",
        switch: |gates| &mut gates.spot_to_spot_consolidation,
    },
    Gate {
        name: "NodeOverlay",
        default: false,
        stage: Stage::Alpha,
        help: "NodeOverlays change the prices and the capacity of instance types",
        switch: |gates| &mut gates.node_overlay,
    },
    Gate {
        name: "StaticCapacity",
        stage: Stage::Alpha,
        // Other than in Karpenter: a pool without `replicas` is not affected.
        default: true,
        help: "NodePools with `replicas` have a fixed number of nodes",
        switch: |gates| &mut gates.static_capacity,
    },
    Gate {
        name: "CapacityBuffer",
        default: false,
        stage: Stage::Alpha,
        help: "CapacityBuffers keep room free for pods to come",
        switch: |gates| &mut gates.capacity_buffer,
    },
    Gate {
        name: "TerminateFirstDrift",
        default: false,
        stage: Stage::Alpha,
        help: "Drifted nodes go before their replacements where nothing can be launched beside them",
        switch: |gates| &mut gates.terminate_first_drift,
    },
    Gate {
        name: "TerminateFirstRepair",
        default: false,
        stage: Stage::Alpha,
        help: "Broken nodes go before their replacements where nothing can be launched beside them",
        switch: |gates| &mut gates.terminate_first_repair,
    },
    Gate {
        name: "PodDeletionCostManagement",
        default: false,
        stage: Stage::Alpha,
        help: "ReplicaSets that shrink remove pods first from nodes that Kerf would like to empty",
        switch: |gates| &mut gates.pod_deletion_cost_management,
    },
];

/// One feature gate.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    pub name: &'static str,
    pub default: bool,
    pub stage: Stage,
    /// What it means that it is on.
    pub help: &'static str,
    switch: fn(&mut FeatureGates) -> &mut bool,
}

/// How far Karpenter has come with a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Alpha,
    Beta,
}

/// Which are on. A gate that is off leaves the fields that belong to it in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "gates are independent switches with names")]
pub struct FeatureGates {
    pub node_repair: bool,
    pub reserved_capacity: bool,
    pub spot_to_spot_consolidation: bool,
    pub node_overlay: bool,
    pub static_capacity: bool,
    pub capacity_buffer: bool,
    pub terminate_first_drift: bool,
    pub terminate_first_repair: bool,
    pub pod_deletion_cost_management: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        let mut gates = Self {
            node_repair: false,
            reserved_capacity: false,
            spot_to_spot_consolidation: false,
            node_overlay: false,
            static_capacity: false,
            capacity_buffer: false,
            terminate_first_drift: false,
            terminate_first_repair: false,
            pod_deletion_cost_management: false,
        };
        for Gate { default, switch, .. } in GATES {
            *switch(&mut gates) = default;
        }
        gates
    }
}

/// A gate that was set and that Kerf does not know. Deployments made for another version of Karpenter have to start, so this is
/// something to warn of and not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownGate(String);

impl fmt::Display for UnknownGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "feature gate {}: unknown to Kerf", self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("{0:?} is not of the form name=true or name=false")]
    NotAPair(String),
    #[error("{gate} is {value:?}, expected true or false")]
    NotABool { gate: String, value: String },
}

impl Stage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "alpha",
            Self::Beta => "beta",
        }
    }
}

impl FeatureGates {
    /// Every gate with its default, as the flag takes them.
    pub const DEFAULTS: &str = match str::from_utf8(&DEFAULTS) {
        Ok(text) => text,
        Err(_) => panic!("the names of gates are texts"),
    };

    /// Reads `NodeRepair=true,StaticCapacity=false`; gates that are not named keep their defaults.
    pub fn parse(text: &str) -> Result<(Self, Vec<UnknownGate>), GateError> {
        let mut gates = Self::default();
        let mut unknown = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(GateError::NotAPair(pair.to_owned()));
            };
            let (name, value) = (name.trim(), value.trim());
            let on = parse_bool(value).ok_or_else(|| GateError::NotABool {
                gate: name.to_owned(),
                value: value.to_owned(),
            })?;
            match GATES.iter().find(|gate| gate.name == name) {
                Some(gate) => *(gate.switch)(&mut gates) = on,
                None => unknown.push(UnknownGate(name.to_owned())),
            }
        }
        Ok((gates, unknown))
    }
}

/// The text of the flag's default has to be there when flags are listed, so it is put together by the compiler.
const DEFAULTS: [u8; length_of_defaults()] = {
    let mut text = [b','; length_of_defaults()];
    let (mut at, mut gate) = (0, 0);
    while gate < GATES.len() {
        let mut part = 0;
        let parts = [GATES[gate].name, "=", shown(GATES[gate].default)];
        while part < parts.len() {
            let mut byte = 0;
            while byte < parts[part].len() {
                text[at] = parts[part].as_bytes()[byte];
                (at, byte) = (at + 1, byte + 1);
            }
            part += 1;
        }
        // The comma is there.
        (at, gate) = (at + 1, gate + 1);
    }
    text
};

const fn length_of_defaults() -> usize {
    let (mut length, mut gate) = (0, 0);
    while gate < GATES.len() {
        length += GATES[gate].name.len() + "=,".len() + shown(GATES[gate].default).len();
        gate += 1;
    }
    // No comma after the last.
    length - 1
}

const fn shown(on: bool) -> &'static str {
    if on { "true" } else { "false" }
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
    fn the_gates_are_those_of_karpenter_in_its_order() {
        let shown = |gate: &Gate| format!("{}={} {}", gate.name, gate.default, gate.stage.as_str());
        assert_eq!(
            GATES.iter().map(shown).collect::<Vec<_>>(),
            [
                "NodeRepair=false alpha",
                "ReservedCapacity=true beta",
                "SpotToSpotConsolidation=false alpha",
                "NodeOverlay=false alpha",
                "StaticCapacity=true alpha",
                "CapacityBuffer=false alpha",
                "TerminateFirstDrift=false alpha",
                "TerminateFirstRepair=false alpha",
                "PodDeletionCostManagement=false alpha",
            ]
        );
    }

    #[test]
    fn the_text_of_all_defaults_changes_nothing() {
        let text = GATES.map(|gate| format!("{}={}", gate.name, gate.default)).join(",");
        assert_eq!(FeatureGates::DEFAULTS, text);
        assert_eq!(FeatureGates::parse(&text), Ok((FeatureGates::default(), Vec::new())));
    }

    /// A switch that another gate has as well would turn a field that is on already.
    #[test]
    fn every_gate_has_a_switch_of_its_own() {
        let off = GATES.map(|gate| format!("{}=false", gate.name)).join(",");
        for Gate { name, switch, .. } in GATES {
            let (alone, _) = FeatureGates::parse(&format!("{off},{name}=true")).unwrap();
            let (mut one, _) = FeatureGates::parse(&off).unwrap();
            *switch(&mut one) = true;
            assert_eq!(alone, one, "{name}");
        }
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
            ("NodeOverlay=1", FeatureGates { node_overlay: true, ..none }),
            ("TerminateFirstDrift=1", FeatureGates { terminate_first_drift: true, ..none }),
            ("StaticCapacity=false", FeatureGates { static_capacity: false, ..none }),
            ("NodeRepair=true,NodeRepair=false", none),
            (
                "NodeRepair=false,ReservedCapacity=true,SpotToSpotConsolidation=True,NodeOverlay=false,\
                 StaticCapacity=FALSE,CapacityBuffer=false,TerminateFirstDrift=false,TerminateFirstRepair=false,\
                 PodDeletionCostManagement=false",
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
    fn gates_that_kerf_does_not_know_are_accepted_and_reported() {
        let (gates, unknown) = FeatureGates::parse("FromTheFuture=false").unwrap();
        assert_eq!(gates, FeatureGates::default());
        let messages: Vec<_> = unknown.iter().map(ToString::to_string).collect();
        assert_eq!(messages, ["feature gate FromTheFuture: unknown to Kerf"]);
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
