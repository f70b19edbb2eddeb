//! The operator's page beside a demo.

use std::{net::SocketAddr, thread};

use kerf_controllers::{settings::DashboardEndpoint, window::Window};
use kerf_dashboard::{About, Board, Place};
use kerf_runtime::admin;
use kerf_simulation::{Policy, Scenario};
use tokio::{net::TcpListener, runtime};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::DemoError;
use crate::{cli::VERSION, explain};

/// Served until it is dropped.
pub(super) struct Page {
    window: Window,
    board: Board,
    address: SocketAddr,
    _serving: DropGuard,
}

impl Page {
    /// Serves the page on a thread and a runtime of its own: in the cluster's runtime time is virtual, and the limits of
    /// connections are in seconds of people.
    pub(super) fn open(
        at: DashboardEndpoint,
        scenario: &Scenario,
        policy: &Policy,
    ) -> Result<Self, DemoError> {
        let settings = policy.settings(&scenario.operator)?;
        let port = at.port.get();
        let failed = |source| DemoError::Page { port, source };
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let listener: TcpListener =
            runtime.block_on(admin::listen(Some(at.address), port)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let window = Window::watched();
        let about = About { version: VERSION.to_owned(), demo: Some("Demo".to_owned()) };
        let board = Board::new(window.clone(), about, explain::of_snapshot(&settings));
        let stop = CancellationToken::new();
        let serving = {
            let routes = kerf_dashboard::routes(board.clone(), Place::of(at.address));
            let stop = stop.clone();
            move || runtime.block_on(admin::serve(listener, routes, stop))
        };
        let name = "dashboard".to_owned();
        thread::Builder::new().name(name).spawn(serving).map_err(failed)?;
        Ok(Self { window, board, address, _serving: stop.drop_guard() })
    }

    pub(super) fn window(&self) -> Window {
        self.window.clone()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) async fn renew(&self) {
        self.board.renew().await;
    }
}
