//! From texts to settings.

use std::{ffi::OsString, fmt, net::IpAddr, num::NonZero, str::FromStr, time::Duration};

use clap::ArgMatches;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use kerf_api::GoDuration;
use kerf_controllers::{
    Settings,
    settings::{
        Batching, ChurnControls, DashboardEndpoint, FeatureGates, LeaderElection, Millicores,
        PreferencePolicy, RepairSettings, parse_bool, parse_default_spread,
    },
};
use kerf_model::MinValuesPolicy;
use kerf_provider::{Flag, FlagKind as Kind, FlagValues, Provider};
use kerf_runtime::{
    Bucket,
    logging::{Logging, Output},
};

use super::{flags, given};
use crate::providers::{self, Chosen};

/// The arguments of `kerf run`.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) settings: Settings,
    pub(crate) provider: Chosen,
    /// Settings without effect. They are logged and no errors: deployments made for Karpenter have to start.
    pub(crate) warnings: Vec<String>,
}

/// The message for an invalid value: where it was given, what it is, what is allowed.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("invalid value {value:?} for {origin}: {problem}")]
pub(crate) struct InvalidValue {
    value: String,
    origin: String,
    problem: String,
}

impl Options {
    pub(super) fn read(
        matches: &ArgMatches,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, InvalidValue> {
        let values = Values { matches, variable };
        let (gates, mut warnings) = values.gates()?;
        if values.bool(&flags::ENABLE_PROFILING)? {
            warnings.push("--enable-profiling: Kerf has no profiling endpoints".into());
        }
        values.bool(&flags::DISABLE_CONTROLLER_WARMUP)?;
        if !values.bool(&flags::IGNORE_DRA_REQUESTS)? {
            warnings.push(
                "--ignore-dra-requests=false: Kerf does not have dynamic resource allocation yet"
                    .into(),
            );
        }
        values.parse::<i64>(&flags::MEMORY_LIMIT)?;

        let settings = Settings {
            metrics_port: values.parse(&flags::METRICS_PORT)?,
            metrics_address: values.address(&flags::METRICS_ADDRESS)?,
            health_probe_port: values.parse(&flags::HEALTH_PROBE_PORT)?,
            health_address: values.address(&flags::HEALTH_ADDRESS)?,
            dashboard: values.dashboard()?,
            client_limit: values.client_limit()?,
            logging: Logging {
                level: values.parse(&flags::LOG_LEVEL)?,
                format: values.parse(&flags::LOG_FORMAT)?,
                outputs: values.map(&flags::LOG_OUTPUT_PATHS, outputs)?,
            },
            leader_election: values.leader_election()?,
            cpu: Millicores::new(values.parse(&flags::CPU_REQUESTS)?),
            observability: !values.bool(&flags::DISABLE_CLUSTER_STATE_OBSERVABILITY)?,
            pod_metrics: !values.bool(&flags::DISABLE_POD_METRICS)?,
            batching: Batching {
                idle: values.map(&flags::BATCH_IDLE_DURATION, duration)?,
                max: values.map(&flags::BATCH_MAX_DURATION, duration)?,
                by_owner: values.bool(&flags::OWNER_AWARE_BATCHING)?,
            },
            preference_policy: values.preference_policy()?,
            min_values_policy: values.min_values_policy()?,
            packing: values.bool(&flags::PACKING)?,
            many_to_many: values.bool(&flags::MANY_TO_MANY)?,
            gates,
            default_spread: values.default_spread()?,
            churn: values.churn()?,
            repair: values.repair()?,
        };
        Ok(Self { settings, provider: values.chosen()?, warnings })
    }
}

/// Where the texts come from: the flag, else its environment variable, else the default.
pub(super) struct Values<'a, V> {
    pub(super) matches: &'a ArgMatches,
    pub(super) variable: V,
}

impl<V: Fn(&str) -> Option<OsString>> Values<'_, V> {
    pub(super) fn churn(&self) -> Result<ChurnControls, InvalidValue> {
        Ok(ChurnControls {
            utilization_threshold: self.parse(&flags::UTILIZATION_THRESHOLD)?,
            price_improvement_factor: self.parse(&flags::PRICE_IMPROVEMENT_FACTOR)?,
            savings_threshold: self.parse(&flags::SAVINGS_THRESHOLD)?,
            grace_period: self.parse(&flags::GRACE_PERIOD)?,
        })
    }

    pub(super) fn repair(&self) -> Result<RepairSettings, InvalidValue> {
        let percent = |text: &str| text.parse().ok().filter(|percent| *percent <= 100);
        Ok(RepairSettings {
            legacy: self.bool(&flags::LEGACY_NODE_REPAIR)?,
            most_unhealthy_percent: self.map(&flags::NODE_REPAIR_UNHEALTHY_PERCENT, percent)?,
        })
    }

    fn text(&self, flag: &'static Flag) -> Written {
        if let Some(text) = given(self.matches, flag) {
            return Written { text: text.to_owned(), flag, origin: Origin::Flag };
        }
        let variable = (self.variable)(flag.env).map(|text| text.to_string_lossy().into_owned());
        match variable.filter(|text| flag.kind == Kind::Text || !text.is_empty()) {
            Some(text) => Written { text, flag, origin: Origin::Variable },
            None => Written { text: flag.default.to_owned(), flag, origin: Origin::Default },
        }
    }

    fn map<T>(
        &self,
        flag: &'static Flag,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, InvalidValue> {
        let written = self.text(flag);
        read(&written.text)
            .ok_or_else(|| written.refuse(format_args!("expected {}", flag.expected)))
    }

    fn parse<T: FromStr>(&self, flag: &'static Flag) -> Result<T, InvalidValue> {
        self.map(flag, |text| text.parse().ok())
    }

    /// `None`: all addresses.
    fn address(&self, flag: &'static Flag) -> Result<Option<IpAddr>, InvalidValue> {
        if self.text(flag).text.is_empty() { Ok(None) } else { self.parse(flag).map(Some) }
    }

    /// `None`: no page.
    fn dashboard(&self) -> Result<Option<DashboardEndpoint>, InvalidValue> {
        let port = NonZero::new(self.parse::<u16>(&flags::DASHBOARD_PORT)?);
        // Unlike that of the other endpoints it is never empty: who wants the page on all addresses has to say so.
        let address = self.parse(&flags::DASHBOARD_ADDRESS)?;
        Ok(port.map(|port| DashboardEndpoint { port, address }))
    }

    /// Variables know more spellings than flags. That is how Karpenter has it.
    pub(super) fn bool(&self, flag: &'static Flag) -> Result<bool, InvalidValue> {
        let from_flag = given(self.matches, flag).is_some();
        self.map(flag, |text| if from_flag { text.parse().ok() } else { parse_bool(text) })
    }

    /// The gates, and warnings of those that change nothing.
    pub(super) fn gates(&self) -> Result<(FeatureGates, Vec<String>), InvalidValue> {
        let gates = self.text(&flags::FEATURE_GATES);
        let (gates, ignored) = FeatureGates::parse(&gates.text).map_err(|e| gates.refuse(e))?;
        Ok((gates, ignored.iter().map(ToString::to_string).collect()))
    }

    pub(super) fn preference_policy(&self) -> Result<PreferencePolicy, InvalidValue> {
        self.map(&flags::PREFERENCE_POLICY, |text| match text {
            "Respect" => Some(PreferencePolicy::Respect),
            "Ignore" => Some(PreferencePolicy::Ignore),
            _ => None,
        })
    }

    pub(super) fn min_values_policy(&self) -> Result<MinValuesPolicy, InvalidValue> {
        self.map(&flags::MIN_VALUES_POLICY, |text| match text {
            "Strict" => Some(MinValuesPolicy::Strict),
            "BestEffort" => Some(MinValuesPolicy::BestEffort),
            _ => None,
        })
    }

    pub(super) fn default_spread(&self) -> Result<Vec<TopologySpreadConstraint>, InvalidValue> {
        let document = self.text(&flags::SCHEDULER_CONFIG);
        parse_default_spread(&document.text).map_err(|error| document.refuse(error))
    }

    /// For commands that have its flags as well.
    pub(super) fn chosen(&self) -> Result<Chosen, InvalidValue> {
        self.with_flags(self.provider()?)
    }

    /// Whether the user says which provider it is.
    #[cfg(feature = "simulate")]
    pub(super) fn names_a_provider(&self) -> bool {
        !matches!(self.text(&flags::PROVIDER).origin, Origin::Default)
    }

    /// This provider, with what its flags were set to.
    pub(super) fn with_flags(
        &self,
        provider: &'static dyn Provider,
    ) -> Result<Chosen, InvalidValue> {
        let mut values = Vec::new();
        for flag in provider.flags() {
            let value = match flag.kind {
                Kind::Bool => self.bool(flag)?.to_string(),
                Kind::Text | Kind::Number => self.text(flag).text,
            };
            values.push((flag.name, value));
        }
        Ok(Chosen { provider, flags: FlagValues::new(values) })
    }

    pub(super) fn provider(&self) -> Result<&'static dyn Provider, InvalidValue> {
        let name = self.text(&flags::PROVIDER);
        let named = providers::named(&name.text);
        named.ok_or_else(|| name.refuse(format_args!("expected {}", providers::names())))
    }

    fn client_limit(&self) -> Result<Option<Bucket>, InvalidValue> {
        let positive = |number: i64| u32::try_from(number).ok().filter(|number| *number > 0);
        let burst =
            self.map(&flags::KUBE_CLIENT_BURST, |text| text.parse().ok().and_then(positive))?;
        self.map(&flags::KUBE_CLIENT_QPS, |text| match text.parse::<i64>().ok()? {
            ..0 => Some(None),
            number => positive(number).map(|per_second| Some(Bucket { per_second, burst })),
        })
    }

    fn leader_election(&self) -> Result<Option<LeaderElection>, InvalidValue> {
        let lease = self.map(&flags::LEADER_ELECTION_NAME, |name| not_empty(name.to_owned()))?;
        let namespace = not_empty(self.text(&flags::LEADER_ELECTION_NAMESPACE).text);
        let disabled = self.bool(&flags::DISABLE_LEADER_ELECTION)?;
        Ok((!disabled).then_some(LeaderElection { lease, namespace }))
    }
}

/// A text and where it stands.
struct Written {
    text: String,
    flag: &'static Flag,
    origin: Origin,
}

enum Origin {
    Flag,
    Variable,
    Default,
}

impl Written {
    fn refuse(&self, problem: impl fmt::Display) -> InvalidValue {
        let Flag { name, env, .. } = self.flag;
        let origin = match self.origin {
            Origin::Flag | Origin::Default => format!("--{name}"),
            Origin::Variable => format!("the environment variable {env} (--{name})"),
        };
        InvalidValue { value: self.text.clone(), origin, problem: problem.to_string() }
    }
}

fn duration(text: &str) -> Option<Duration> {
    text.parse().ok().map(|duration: GoDuration| duration.as_duration())
}

fn outputs(paths: &str) -> Option<Vec<Output>> {
    let path = |path: &str| not_empty(path.trim().to_owned()).map(|path| Output::from(&*path));
    paths.split(',').map(path).collect()
}

fn not_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
