//! `kerf run`: from settings to a running operator, and back.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use kerf_api::CapacityBuffer;
use kerf_controllers::{
    Operator, definitions,
    operator::{self, Timing as WatchTiming},
};
use kerf_model::repair::BadPolicies;
use kerf_provider::{BoxError, Connect};
use kerf_runtime::{
    Clock, Fence, Metrics,
    client::{self, Connection, RequestMetrics},
    crds::{self, Crd},
    election::{Candidate, Election, Timing},
    leadership::{Ended, lead},
    logging, shutdown,
};
use kube::Resource;
use tokio::{
    runtime::{self, Handle, Runtime},
    sync::watch,
};
use tracing::{error, info, warn};

use crate::{
    cli::{COMMIT, Options, VERSION},
    exit,
};
use endpoints::Endpoints;
#[cfg(all(test, feature = "aws"))]
pub(crate) use endpoints::register_build_info;

mod endpoints;
mod schemas;

/// Why the operator stopped without being asked to.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Logging(#[from] logging::Error),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot listen on port {port} (--{flag}): {source}")]
    Listen { port: u16, flag: &'static str, source: io::Error },
    #[error("cannot listen on {address} (--{flag}): {source}")]
    ListenAt { address: SocketAddr, flag: &'static str, source: io::Error },
    #[error(transparent)]
    Connection(#[from] client::Error),
    #[error("cannot set up the provider {name}: {source}")]
    Provider { name: &'static str, source: BoxError },
    /// What its flags name cannot be used: a mistake in the command line, and not of the surroundings.
    #[error("cannot set up the provider {name}: {source}")]
    ProviderFlags { name: &'static str, source: BoxError },
    #[error(transparent)]
    RepairPolicies(#[from] BadPolicies),
    #[error("{0}; install them with: kerf crds | kubectl apply -f -")]
    Crds(#[from] crds::Missing),
    #[error(transparent)]
    Ended(#[from] Ended<operator::OperatorError>),
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if let Err(error) = options.settings.logging.start(COMMIT) {
        eprintln!("kerf: {error}");
        return exit::FAILED.into();
    }
    info!(version = VERSION, "starting");
    for warning in &options.warnings {
        warn!("{warning}");
    }
    match in_runtimes(|elections| operate(options, elections)) {
        Ok(()) => {
            info!("stopped");
            ExitCode::SUCCESS
        }
        Err(error) => {
            if let Error::RepairPolicies(BadPolicies(all)) = &error {
                for bad in all {
                    error!("{bad}");
                }
            } else {
                error!("{error}");
            }
            match error {
                Error::ProviderFlags { .. } | Error::RepairPolicies(_) => exit::WRONG_INPUT.into(),
                _ => exit::FAILED.into(),
            }
        }
    }
}

/// Runs the operator on a runtime of its own, and gives it another one for its elections: a thread that has nothing else
/// to do renews the lease, however much there is to evict, to decide and to tell.
fn in_runtimes<W>(operator: impl FnOnce(Handle) -> W) -> Result<(), Error>
where
    W: Future<Output = Result<(), Error>>,
{
    let runtime = Runtime::new().map_err(Error::Runtime)?;
    let mut elections = runtime::Builder::new_multi_thread();
    let elections = elections.worker_threads(1).thread_name("election").enable_all();
    let elections = elections.build().map_err(Error::Runtime)?;
    let result = runtime.block_on(operator(elections.handle().clone()));
    // A name lookup that hangs is no reason to stay.
    elections.shutdown_background();
    runtime.shutdown_background();
    result
}

async fn operate(options: &Options, elections: Handle) -> Result<(), Error> {
    let Options { settings, provider: chosen, .. } = options;
    let stop = shutdown::on_signals().map_err(Error::Runtime)?;
    let metrics = Metrics::default();
    let endpoints = Endpoints::open(settings, &metrics).await?;

    let of_provider = |source| Error::Provider { name: chosen.provider.name(), source };
    chosen.provider.check(&chosen.flags).map_err(|source| {
        let name = chosen.provider.name();
        Error::ProviderFlags { name, source }
    })?;
    let config = client::config().await?;
    let url = config.cluster_url.to_string();
    let namespace = client::own_namespace(&config);
    let user_agent = format!("kerf/{VERSION}");
    let requests = RequestMetrics::register(&metrics);
    let connection = Connection { config, user_agent: &user_agent, metrics: &requests };
    let clock = Clock::system();
    let fence = match settings.leader_election {
        Some(_) => Fence::closed(clock.clone()),
        None => Fence::open(clock.clone()),
    };
    let client = connection.client(settings.client_limit, fence.clone())?;
    let with = Connect {
        client: client.clone(),
        clock: clock.clone(),
        fence: fence.clone(),
        metrics: &metrics,
        cluster_ca: client::certificate_authority(),
        reserved_capacity: settings.gates.reserved_capacity,
        flags: &chosen.flags,
    };
    let provider = chosen.provider.connect(with).map_err(of_provider)?;
    settings.repair_rules(&provider.facts().repair_policies)?;
    endpoints.provider.set(Arc::clone(&provider));

    let required = definitions::required(&*provider);
    tokio::select! {
        answer = crds::await_all(&client, &url, &required) => answer?,
        () = stop.cancelled() => return Ok(()),
    }
    endpoints.crds.send_replace(true);
    // They end with the runtime.
    let mut known = kerf_api::crd::crds(&[chosen.provider.additions()]);
    if !settings.gates.capacity_buffer {
        // That of another autoscaler, perhaps, and none of Kerf's business.
        known.retain(|definition| definition.spec.group != CapacityBuffer::group(&()));
    }
    tokio::spawn(schemas::name_missing_fields(client.clone(), known));
    tokio::spawn(watch_definitions(client.clone(), required, endpoints.crds.clone()));

    let election = match &settings.leader_election {
        None => None,
        Some(wanted) => {
            let candidate = Candidate {
                namespace: wanted.namespace.clone().unwrap_or(namespace),
                lease: wanted.lease.clone(),
                identity: identity(),
                timing: Timing::default(),
                seed: random(),
            };
            // A client belongs to the runtime in which it is made.
            let _entered = elections.enter();
            let client = connection.election_client()?;
            Some(Election::new(client, candidate, clock.clone(), fence.clone(), &metrics))
        }
    };
    let operator = Operator {
        client,
        clock,
        fence,
        settings: settings.clone(),
        provider,
        metrics: metrics.clone(),
        ready: endpoints.synced.clone(),
        freshness: endpoints.freshness.clone(),
        window: endpoints.window.clone(),
        timing: WatchTiming::default(),
        seed: random(),
    };
    lead(election, stop, |term| {
        operator::run(operator, async move { term.begun.cancelled().await }, term.ended)
    })
    .await?;
    Ok(())
}

const LOOK_AT_DEFINITIONS: Duration = Duration::from_secs(10);

/// Custom resources can go while the operator runs; then it is no longer ready.
async fn watch_definitions(client: kube::Client, required: Vec<Crd>, served: watch::Sender<bool>) {
    loop {
        tokio::time::sleep(LOOK_AT_DEFINITIONS).await;
        // A server that does not answer is a matter of other checks.
        if let Ok(going) = crds::going(&client, &required).await {
            served.send_replace(going.is_empty());
        }
    }
}

/// Tells this process from all others that ever were.
fn identity() -> String {
    let host = hostname::get().unwrap_or_default();
    format!("{}_{:016x}{:016x}", host.display(), random(), random())
}

/// From the operating system, by way of the keys that hash maps get.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
