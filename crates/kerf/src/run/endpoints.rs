//! The operator's metrics, probes and page.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
};

use kerf_controllers::{
    Settings,
    operator::{Freshness, Timing},
    settings::DashboardEndpoint,
    window::Window,
};
use kerf_dashboard::{About, Board, Place};
use kerf_provider::CloudProvider;
use kerf_runtime::{
    Metrics,
    admin::{self, Check},
};
use prometheus_client::metrics::{family::Family, gauge::Gauge};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::info;

use super::Error;
use crate::{
    cli::{COMMIT, VERSION},
    explain,
};

/// Served until it is dropped.
pub(super) struct Endpoints {
    /// Whether the API server is there and has the custom resources.
    pub(super) crds: watch::Sender<bool>,
    /// Whether the operator knows the cluster.
    pub(super) synced: watch::Sender<bool>,
    /// How old that knowledge is.
    pub(super) freshness: Freshness,
    /// Whether the provider can work.
    pub(super) provider: ProviderSlot,
    /// What the page shows; nothing is kept behind it where there is no page.
    pub(super) window: Window,
    _serving: DropGuard,
}

impl Endpoints {
    pub(super) async fn open(settings: &Settings, metrics: &Metrics) -> Result<Self, Error> {
        let (crds, synced) = (watch::Sender::new(false), watch::Sender::new(false));
        let (freshness, provider) = (Freshness::default(), ProviderSlot::default());
        register_build_info(metrics);
        let ready = vec![
            check("manager", "the caches are not synced yet", &synced),
            up_to_date(freshness.clone()),
            provider.check(),
            check("crd", "custom resources are missing or being deleted", &crds),
            Check::ping("readyz"),
        ];
        let probes = admin::probe_routes(vec![Check::ping("healthz")], ready);

        let stop = CancellationToken::new();
        let (address, port) = (settings.metrics_address, settings.metrics_port);
        let listener = listen(address, port, "metrics-port").await?;
        tokio::spawn(admin::serve(listener, admin::metrics_routes(metrics.clone()), stop.clone()));
        let (address, port) = (settings.health_address, settings.health_probe_port);
        let listener = listen(address, port, "health-probe-port").await?;
        tokio::spawn(admin::serve(listener, probes, stop.clone()));
        let window = match settings.dashboard {
            None => Window::default(),
            Some(DashboardEndpoint { port, address }) => {
                let listener = listen(Some(address), port.get(), "dashboard-port").await?;
                let window = Window::watched();
                let about = About { version: VERSION.to_owned(), demo: None };
                let board = Board::new(window.clone(), about, explain::of_snapshot(settings));
                let routes = kerf_dashboard::routes(board.clone(), Place::of(address));
                tokio::spawn(admin::serve(listener, routes, stop.clone()));
                // It ends with the runtime.
                tokio::spawn(board.keep_up());
                window
            }
        };
        Ok(Self { crds, synced, freshness, provider, window, _serving: stop.drop_guard() })
    }
}

/// The provider, once there is one: the probes are served before.
#[derive(Clone, Default)]
pub(super) struct ProviderSlot(Arc<OnceLock<Arc<dyn CloudProvider>>>);

impl ProviderSlot {
    pub(super) fn set(&self, provider: Arc<dyn CloudProvider>) {
        // There is one provider in a process.
        let _ = self.0.set(provider);
    }

    fn check(&self) -> Check {
        let slot = self.clone();
        Check::new("provider", move || match slot.0.get() {
            Some(provider) => provider.ready(),
            None => Err("the provider is not connected yet".to_owned()),
        })
    }
}

fn check(name: &'static str, reason: &'static str, state: &watch::Sender<bool>) -> Check {
    let state = state.subscribe();
    Check::new(name, move || if *state.borrow() { Ok(()) } else { Err(reason) })
}

/// Fails while nothing is heard from the API server about some kind: then what is known of the cluster may be wrong.
fn up_to_date(freshness: Freshness) -> Check {
    let most = Timing::default().blind_at_most();
    Check::new("index", move || match freshness.oldest() {
        Some((_, age)) if age > most => {
            Err("the API server has sent nothing about some kind of object for 30 seconds")
        }
        _ => Ok(()),
    })
}

async fn listen(
    address: Option<IpAddr>,
    port: u16,
    flag: &'static str,
) -> Result<TcpListener, Error> {
    let failed = |source| match address {
        Some(address) => {
            Error::ListenAt { address: SocketAddr::from((address, port)), flag, source }
        }
        None => Error::Listen { port, flag, source },
    };
    let listener = admin::listen(address, port).await.map_err(failed)?;
    // The port is worth a line because 0 means any.
    let port = listener.local_addr().map_err(failed)?.port();
    info!(flag, port, "listening");
    Ok(listener)
}

/// Under the name that dashboards know. There is no Go version to tell: an absent label reads as empty.
pub(crate) fn register_build_info(metrics: &Metrics) {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let labels = vec![
        ("version", VERSION),
        ("goarch", architecture),
        ("commit", COMMIT.unwrap_or_default()),
    ];
    let family = Family::<Vec<(&str, &str)>, Gauge>::default();
    family.get_or_create(&labels).set(1);
    metrics.register(|registry| {
        registry.register("karpenter_build_info", "Version and commit of this build", family);
    });
}
