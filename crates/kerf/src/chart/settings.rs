//! A value of the chart for every flag of `kerf run` that does something.

use std::fmt::Write;

use kerf_controllers::settings::{GATES, Gate};
use kerf_provider::{Flag, FlagKind, Provider};
use serde_json::{Map, Value, json};

use crate::{cli::flags, providers};

const BEGIN: &str = "  # Below: written by `cargo xtask generate` from the flags of `kerf run`.\n";
const END: &str = "  # Above: written by `cargo xtask generate`.\n";
/// Flags that change nothing get no value: one that is set would say that it does.
const WITHOUT_EFFECT: &str = "without effect";
const DURATION: &str = r"^(0|Never|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$";

/// The provider whose flag it is, if it is one's own; and the flag.
type Setting = (Option<&'static str>, &'static Flag);

/// Every flag that does something, providers' included that cannot be run yet.
fn all() -> Vec<Setting> {
    let of_provider = |provider: &'static dyn Provider| {
        provider.flags().iter().map(move |flag| (Some(provider.name()), *flag))
    };
    let own = flags::own().map(|flag| (None, flag));
    let all = own.chain(providers::all().into_iter().flat_map(of_provider));
    all.filter(|(_, flag)| !flag.heading.ends_with(WITHOUT_EFFECT)).collect()
}

pub(super) fn of_flag(name: &str) -> Setting {
    all().into_iter().find(|(_, flag)| flag.name == name).unwrap()
}

/// `batch-idle-duration` is `batchIdleDuration`; abbreviations are written as in Karpenter's chart.
fn name(flag: &Flag) -> String {
    let mut name = String::new();
    for word in flag.name.split('-') {
        match word {
            first if name.is_empty() => name.push_str(first),
            "vpc" | "ca" | "qps" | "cel" => name.push_str(&word.to_uppercase()),
            "enis" => name.push_str("ENIs"),
            word => {
                name.push_str(&word[..1].to_uppercase());
                name.push_str(&word[1..]);
            }
        }
    }
    name
}

/// Which setting is which flag, for the template.
pub(super) fn flags() -> Value {
    let row = |(provider, flag): Setting| {
        let mut row = json!({"setting": name(flag), "flag": flag.name});
        if let Some(provider) = provider {
            row["provider"] = provider.into();
        }
        row
    };
    all().into_iter().map(row).collect()
}

/// The default as it stands in the values.
fn default(flag: &Flag) -> Value {
    if flag.value == "GATES" && flag.name == "feature-gates" {
        let gates = flag.default.split(',').filter_map(|gate| gate.split_once('='));
        let gates = gates.map(|(gate, on)| (gate_name(gate), Value::Bool(on == "true")));
        return Value::Object(gates.collect());
    }
    if flag.value == "YAML" {
        // An empty text in the place of a document makes Helm warn.
        return Value::Null;
    }
    match flag.kind {
        FlagKind::Bool => Value::Bool(flag.default == "true"),
        FlagKind::Number => match (flag.default.parse::<i64>(), flag.default.parse::<f64>()) {
            (Ok(number), _) => number.into(),
            (_, Ok(number)) => number.into(),
            _ => flag.default.into(),
        },
        FlagKind::Text => flag.default.into(),
    }
}

/// `NodeRepair` is `nodeRepair`, as in Karpenter's chart.
fn gate_name(gate: &str) -> String {
    gate[..1].to_lowercase() + &gate[1..]
}

pub(super) fn fill_values(text: &str) -> String {
    let mut settings = String::new();
    let mut heading = "";
    for (_, flag) in all() {
        if flag.heading != heading {
            heading = flag.heading;
            let _ = write!(settings, "\n  ## {heading}\n\n");
        }
        let _ = writeln!(settings, "  # {}.", flag.help);
        match default(flag) {
            Value::Object(gates) => {
                let _ = writeln!(settings, "  {}:", name(flag));
                for Gate { name, stage, help, .. } in GATES {
                    let (gate, stage) = (gate_name(name), stage.as_str());
                    let on = &gates[&gate];
                    let _ = writeln!(settings, "    # {help} ({stage}).\n    {gate}: {on}");
                }
            }
            value => {
                let _ = writeln!(settings, "  {}: {value}", name(flag));
            }
        }
    }
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    format!("{before}{BEGIN}{settings}\n{END}{after}")
}

pub(super) fn fill_schema(text: &str) -> String {
    let mut schema: Value = serde_json::from_str(text).unwrap();
    let properties: Map<String, Value> =
        all().into_iter().map(|(_, flag)| (name(flag), schema_of(flag))).collect();
    schema["properties"]["settings"] = json!({
        "type": "object", "additionalProperties": false, "properties": properties,
        "description": "The flags of kerf run. Written by cargo xtask generate.",
    });
    format!("{schema:#}\n")
}

fn schema_of(flag: &Flag) -> Value {
    let mut schema = match (flag.kind, flag.value) {
        (FlagKind::Bool, _) => json!({"type": "boolean"}),
        // Ports are named in the chart's objects, so that none is chosen at random; 0 is for endpoints that are off.
        (_, "PORT") => {
            let least = i64::from(flag.default != "0");
            json!({"type": "integer", "minimum": least, "maximum": 65535})
        }
        (_, "DURATION") => json!({"type": "string", "pattern": DURATION}),
        (_, "NUMBER") if flag.expected == "a number from 0 to 1" => {
            json!({"type": "number", "minimum": 0, "maximum": 1})
        }
        (FlagKind::Number, _) => json!({"type": "number"}),
        (_, "LEVEL" | "FORMAT" | "POLICY") => {
            let choices = flag.expected.split(", ").flat_map(|part| part.split(" or "));
            json!({"enum": choices.collect::<Vec<_>>()})
        }
        (_, "YAML") => json!({"type": ["string", "object", "null"]}),
        (_, "GATES") if flag.name == "feature-gates" => {
            json!({"type": "object", "additionalProperties": {"type": "boolean"}})
        }
        _ if flag.name == flags::PROVIDER.name => {
            json!({"enum": providers::all().map(Provider::name)})
        }
        _ => json!({"type": "string"}),
    };
    schema["description"] = format!("{} (--{}).", flag.help, flag.name).into();
    schema
}
