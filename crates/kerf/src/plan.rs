//! `kerf plan`: what would be launched for these pods, and why not.

use std::{collections::BTreeMap, process::ExitCode, sync::Arc};

use jiff::Timestamp;
use kerf_api::{
    NodeClaim, NodePool, ObjectExt,
    conditions::{Conditioned, DRIFTED, LAUNCHED},
    labels::LabelRules,
};
use kerf_cluster::{
    Cluster,
    snapshot::{Inputs, KnownTypes, Taken},
    validation::InvalidPod,
    view::Unreadable,
};
use kerf_controllers::Settings;
use kerf_manifests::{Loader, MOST_PODS, Offline};
use kerf_model::{repair::BadPolicies, snapshot::Idle};
use kerf_provider::{BoxError, Catalogue, CloudDrift, ForeseenDrift, UnknownTypes};
use kube::ResourceExt;
use serde_json::Value;

use crate::{
    cli::{Output, PlanOptions, Sources},
    exit,
    output::{self, Answer},
    providers::{self, Chosen},
    snapshot::{ReadCluster, ReadError, read_cluster},
};
use input::InputError;
use report::Report;

pub(crate) use disruption::CommandReport;
#[cfg(all(test, feature = "simulate"))]
pub(crate) use disruption::Report as DisruptionReport;
pub(crate) use moment::Moment;
#[cfg(all(test, feature = "simulate"))]
pub(crate) use report::Report as PlanReport;
pub(crate) use report::{Claim, Refused};
pub(crate) use table::count;

mod disruption;
mod input;
mod moment;
mod report;
mod table;

#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{0}")]
    InstanceTypes(BoxError),
    #[error("{0}")]
    Unreadable(#[from] Unreadable),
    #[error(
        "there is neither a NodePool nor a Node among the objects, so no pod can be placed; \
         add a NodePool, for instance with -f nodepool.yaml"
    )]
    NowhereToGo,
    #[error("{0}")]
    Cluster(#[from] ReadError),
    #[error(transparent)]
    RepairPolicies(#[from] BadPolicies),
    #[error("there is no {kind} {name}; there are: {known}")]
    NotThere { kind: &'static str, name: String, known: String },
    #[error("there is no pod {name} in namespace {namespace}; {hint}")]
    NoPod { name: String, namespace: String, hint: String },
    #[error("cannot write the plan: {0}")]
    Write(String),
}

pub(crate) fn plan(options: &PlanOptions) -> ExitCode {
    let done = if options.disruption { disruption::plan(options) } else { launches(options) };
    done.unwrap_or_else(|error| error.report())
}

fn launches(options: &PlanOptions) -> Result<ExitCode, PlanError> {
    let report = report(options)?;
    print(&report, options.output, table::render)?;
    let homeless = options.fail_on_unschedulable && !report.unschedulable.is_empty();
    Ok(if homeless { exit::UNSCHEDULABLE.into() } else { ExitCode::SUCCESS })
}

impl PlanError {
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("kerf: {self}");
        match self {
            Self::Cluster(_) | Self::Write(_) => exit::FAILED.into(),
            _ => exit::WRONG_INPUT.into(),
        }
    }
}

pub(crate) fn print<A: Answer>(
    answer: &A,
    output: Output,
    render: impl Fn(&A, Output) -> String,
) -> Result<(), PlanError> {
    let text = output::text(answer, output.format, |answer| render(answer, output));
    output::print(&text.map_err(PlanError::Write)?)
        .map_err(|error| PlanError::Write(error.to_string()))
}

fn report(options: &PlanOptions) -> Result<Report, PlanError> {
    let sources = &options.sources;
    let objects = Objects::gather(sources)?;
    let Taken { snapshot, left_out } = objects.seen.snapshot()?;
    let plan = kerf_scheduler::schedule_cheaply(&snapshot, &sources.settings.scheduling());
    let mut report = Report::new(&snapshot, &plan);
    let (uninterested, invalid): (Vec<_>, Vec<_>) =
        left_out.into_iter().partition(InvalidPod::wants_no_pool);
    report.add_invalid(&invalid);
    report.add_buffers(&objects.seen.loaded.cluster, &snapshot, &plan);
    report.notes = notes(&objects.seen, &uninterested);
    report.notes.extend(objects.drift_notes());
    report.notes.extend(objects.warnings.iter().chain(&sources.warnings).cloned());
    if let Some(namespace) = &options.namespace {
        report.keep_namespace(namespace);
    }
    Ok(report)
}

/// What a command was given to work on, from files or from a cluster.
pub(crate) struct Objects {
    pub(crate) seen: Offline,
    pub(crate) moment: Moment,
    /// Where a pod is that is named without a namespace.
    pub(crate) namespace: String,
    /// Why the instance types of a pool are not known.
    unknown_types: BTreeMap<String, String>,
    /// Claims that have drifted from their NodeClass as it is here, and that no operator has marked so yet.
    pub(crate) cloud_drift: BTreeMap<String, CloudDrift>,
    /// What an API server would not take as it is, of objects that one has taken; and what is assumed about instance types.
    pub(crate) warnings: Vec<String>,
}

impl Objects {
    pub(crate) fn gather(sources: &Sources) -> Result<Self, PlanError> {
        let Sources { files, target, now, settings, provider: chosen, .. } = sources;
        let mut namespace = "default".to_owned();
        let (mut warnings, is_live) = (Vec::new(), files.is_empty());
        let load = |objects: &mut Loader| {
            if is_live {
                let read: ReadCluster = read_cluster(target, |_| {})?;
                namespace = read.namespace;
                let gates = &settings.gates;
                let counts = |kind: &str| match kind {
                    "NodeOverlay" => gates.node_overlay,
                    _ => gates.capacity_buffer,
                };
                let refused = read.refused.iter().filter(|(kind, _)| counts(kind));
                warnings.extend(refused.map(|(kind, why)| format!("{kind}s are left out: {why}")));
                return add_all(read.objects, objects);
            }
            warnings = input::read(files, objects)?;
            Ok(())
        };
        let mut gathered = Self::gather_with(load, (*now, is_live), settings, chosen)?;
        gathered.namespace = namespace;
        gathered.warnings.splice(..0, warnings);
        Ok(gathered)
    }

    /// The same of objects that were read from a cluster just now.
    pub(crate) fn of_cluster(
        objects: impl IntoIterator<Item = Value>,
        sources: &Sources,
    ) -> Result<Self, PlanError> {
        let Sources { now, settings, provider, .. } = sources;
        Self::gather_with(|loader| add_all(objects, loader), (*now, true), settings, provider)
    }

    fn gather_with(
        load: impl FnOnce(&mut Loader) -> Result<(), PlanError>,
        (now, is_live): (Option<Timestamp>, bool),
        settings: &Settings,
        chosen: &Chosen,
    ) -> Result<Self, PlanError> {
        let catalogue = chosen.catalogue().map_err(PlanError::InstanceTypes)?;
        // The objects may come from any cloud.
        let label_rules = catalogue.label_rules().clone().calling_zones_as_clouds_do();
        let classes = chosen.provider.node_classes().into_iter();
        let classes = classes.map(|class| (class.group, class.kind));
        let (mut objects, mut warnings) = (Loader::knowing(classes), Vec::new());
        load(&mut objects)?;
        let newest = objects.newest().filter(|_| !is_live);
        let moment = Moment::of(now, newest, is_live);
        let mut loaded = objects.finish(&label_rules, moment.judged_at);
        settings.prepare(&mut loaded.cluster);
        if let Some(rules) = settings.repair_rules(&catalogue.repair_policies())? {
            loaded.cluster.repair_by(rules);
        }
        if !settings.gates.capacity_buffer && loaded.cluster.buffers().values().next().is_some() {
            warnings.push(
                "CapacityBuffers are ignored; with --feature-gates=CapacityBuffer=true room is kept for them"
                    .to_owned(),
            );
        }
        let cluster = &loaded.cluster;
        if cluster.pools().values().next().is_none() && cluster.nodes().values().next().is_none() {
            return Err(PlanError::NowhereToGo);
        }
        let (mut instance_types, mut unknown_types) = (BTreeMap::new(), BTreeMap::new());
        for pool in cluster.pools().values() {
            let known = types_of(&*catalogue, cluster, pool, &mut warnings);
            if let Err(because) = &known {
                unknown_types.insert(pool.name_any(), because.clone());
            }
            instance_types.insert(pool.name_any(), known);
        }
        let (now, churn) = (moment.judged_at, settings.churn);
        warnings.extend(overlay_notes(cluster, &instance_types, &label_rules));
        let types = instance_types.clone();
        let inputs = Inputs { now, label_rules, instance_types, churn, ..Inputs::default() };
        let mut seen = loaded.seen_with(inputs);
        let cloud_drift =
            foresee_drift(&mut seen.loaded.cluster, &*catalogue, &types, now, &mut warnings);
        let namespace = String::new();
        Ok(Self { seen, moment, namespace, unknown_types, cloud_drift, warnings })
    }

    /// A sentence for each claim that has drifted from its NodeClass as it is here.
    pub(crate) fn drift_notes(&self) -> impl Iterator<Item = String> + '_ {
        self.cloud_drift.iter().map(|(claim, CloudDrift { reason, because })| {
            format!(
                "NodeClaim {claim} has drifted from its NodeClass as it is here: {reason}, {because}"
            )
        })
    }

    /// Why nothing is known about the machines of this pool, if that is so.
    pub(crate) fn unknown_types(&self, pool: &NodePool) -> Option<Idle> {
        let because = self.unknown_types.get(&pool.name_any())?.clone();
        Some(Idle::UnknownInstanceTypes { because })
    }
}

fn add_all(objects: impl IntoIterator<Item = Value>, loader: &mut Loader) -> Result<(), PlanError> {
    for object in objects {
        loader.add(object).map_err(InputError::of_cluster)?;
    }
    Ok(())
}

/// Of overlays that change nothing, and why.
fn overlay_notes(
    cluster: &Cluster,
    types: &BTreeMap<String, KnownTypes>,
    rules: &LabelRules,
) -> Vec<String> {
    let count = cluster.overlays().values().count();
    if count > 0 && !cluster.applies_overlays() {
        let counted = table::count(count, "NodeOverlay");
        let note = "left out, because the feature gate NodeOverlay is off; switch it on with --feature-gates=NodeOverlay=true";
        return vec![format!("{counted} {note}")];
    }
    let left_out = cluster.overlaid(types.clone(), rules).left_out.into_iter();
    left_out.map(|(name, why)| format!("NodeOverlay {name} is left out: {why}")).collect()
}

/// NodeClasses in files may have been changed since their claims were launched. What an operator has found stays.
fn foresee_drift(
    cluster: &mut Cluster,
    catalogue: &dyn Catalogue,
    types: &BTreeMap<String, KnownTypes>,
    now: Timestamp,
    notes: &mut Vec<String>,
) -> BTreeMap<String, CloudDrift> {
    let is_judged = |claim: &&Arc<NodeClaim>| {
        claim.is_true(LAUNCHED) && !claim.is_true(DRIFTED) && !claim.is_deleting()
    };
    let claims: Vec<_> = cluster.claims().values().filter(is_judged).cloned().collect();
    let mut found = BTreeMap::new();
    for claim in claims {
        let Some(class) = cluster.node_class(&claim.spec.node_class_ref) else { continue };
        let of_pool = claim.node_pool().and_then(|pool| types.get(pool)?.as_ref().ok());
        let of_pool = of_pool.map(Vec::as_slice).unwrap_or_default();
        let ForeseenDrift { drift, note } = catalogue.drifted(&claim, class, of_pool);
        notes.extend(note.filter(|note| !notes.contains(note)));
        if let Some(drift) = drift {
            let mut changed = NodeClaim::clone(&claim);
            changed.condition_set(now).set_true_because(DRIFTED, drift.reason, &drift.because);
            cluster.apply(changed);
            found.insert(claim.name_any(), drift);
        }
    }
    found
}

/// What the provider has for the pool, or why that is not known. What it assumes is added to the notes, once.
fn types_of(
    catalogue: &dyn Catalogue,
    cluster: &Cluster,
    pool: &NodePool,
    notes: &mut Vec<String>,
) -> KnownTypes {
    let reference = &pool.spec.template.spec.node_class_ref;
    let class = cluster.node_class(reference).map(|class| &**class);
    match catalogue.instance_types(pool, class) {
        Ok(launchable) => {
            for note in launchable.notes {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            Ok(launchable.types)
        }
        Err(UnknownTypes::NodeClass(because)) => Err(because),
        Err(UnknownTypes::OtherProvider) => {
            let kind = &reference.kind;
            Err(match providers::of_node_class(&reference.group, kind) {
                Some(provider) => format!(
                    "its NodeClass is of kind {kind}; choose its provider with --provider={}",
                    provider.name()
                ),
                None => format!(
                    "its NodeClass is of kind {kind}; give them with --instance-types-file-path"
                ),
            })
        }
    }
}

pub(crate) fn notes(seen: &Offline, left_out: &[InvalidPod]) -> Vec<String> {
    let (loaded, mut notes) = (&seen.loaded, Vec::new());
    if loaded.cluster.pools().values().next().is_none() {
        notes.push("there is no NodePool, so nothing can be launched".to_owned());
    }
    for workload in &loaded.expanded {
        let (kind, name, pods) = (workload.kind, &workload.workload, workload.pods);
        let counted = table::count(pods, "pod");
        notes.push(if pods == workload.asked {
            format!("{kind} {name} has no pods yet and counts with the {counted} it asks for")
        } else {
            format!(
                "{kind} {name} has no pods yet and asks for {}; it counts with {counted}, because a plan has at \
                 most {MOST_PODS} pods that do not exist yet",
                workload.asked
            )
        });
    }
    for claim in loaded.cluster.claims().values() {
        if claim.is_unlaunched() {
            notes.push(format!(
                "NodeClaim {} has no instance yet: its size is unknown, and the plan leaves it out",
                claim.name_any()
            ));
        }
    }
    for (claim, drift) in &seen.drift {
        notes.push(format!(
            "NodeClaim {claim} has drifted from its NodePool as it is here: {}",
            drift.reason()
        ));
    }
    notes.extend(left_out.iter().map(|pod| format!("pod {} is left out: {pod}", pod.pod)));
    if !loaded.passed_over.is_empty() {
        let kinds = loaded.passed_over.iter().map(|(kind, count)| format!("{count} {kind}"));
        let kinds: Vec<_> = kinds.collect();
        notes.push(format!("ignored, because plans do not depend on them: {}", kinds.join(", ")));
    }
    notes
}
