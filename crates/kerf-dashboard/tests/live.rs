//! The page of an operator that works on a whole cluster, in virtual time.
#![allow(clippy::unwrap_used, reason = "what is not there is a test that fails")]

use axum::body::Body;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use kerf_controllers::window::Window;
use kerf_dashboard::{About, Board, Place, routes};
use kerf_simulation::{DEFAULTS, OperatorHandle, Play, Policy, Scenario};
use kerf_testbed::Testbed;
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tower::ServiceExt;

fn board(window: &Window) -> Board {
    let explain = Arc::new(|snapshot: &kerf_model::Snapshot, name: &str| {
        let node = snapshot.nodes.iter().find(|node| node.name == name)?;
        Some(format!("{} has {} pods", node.name, node.pods.len()))
    });
    Board::new(window.clone(), About::default(), explain)
}

async fn ask(board: &Board, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).header(header::HOST, "localhost").body(Body::empty()).unwrap();
    let response = routes(board.clone(), Place::Loopback).oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn view(board: &Board) -> Value {
    let (status, body) = ask(board, "/api/view").await;
    assert_eq!(status, StatusCode::OK);
    serde_json::from_str(&body).unwrap()
}

#[test]
fn the_page_of_a_leader_shows_nodes_prices_decisions_and_refusals() {
    Testbed::in_virtual_time(async {
        let window = Window::watched();
        let board = board(&window);
        assert_eq!(view(&board).await["nothing"], "the operator is starting");
        let policy = Policy::named(&[DEFAULTS.to_owned()], &[]).unwrap().remove(0);
        let mut play =
            Play::start_watched(&Scenario::demo().unwrap(), &policy, window.clone()).await.unwrap();
        board.renew().await;
        for minute in [5, 10, 20] {
            play.until(Duration::from_mins(minute)).await.unwrap();
            board.renew().await;
        }
        let view = view(&board).await;
        assert_eq!(view["leads"], true);
        let nodes = view["nodes"].as_array().unwrap();
        assert_eq!(view["totals"]["nodes"], nodes.len());
        assert!(nodes.len() > 1, "{view:#}");
        let ready = nodes.iter().find(|node| node["state"] == "ready").unwrap();
        assert!(ready["pods"].as_array().unwrap().len() > 1, "{ready:#}");
        assert!(ready["pricePerHour"].is_string() && ready["fill"]["cpu"].as_i64() > Some(0));
        let prices = view["prices"].as_array().unwrap();
        assert_eq!(prices[0]["pricePerHour"], "0", "it began without a node");
        assert_eq!(prices.last().unwrap()["pricePerHour"], view["totals"]["pricePerHour"]);
        let reasons = |list: &str| -> Vec<String> {
            let list = view[list].as_array().unwrap().iter();
            list.map(|one| one["reason"].as_str().unwrap().to_owned()).collect()
        };
        assert!(reasons("log").contains(&"Created".to_owned()), "{:?}", reasons("log"));
        assert!(reasons("log").contains(&"Nominated".to_owned()), "{:?}", reasons("log"));
        assert!(!reasons("refusals").is_empty());
        let refused = nodes.iter().filter(|node| node["refusal"].is_object()).count();
        assert!(refused > 0, "{nodes:#?}");

        let name = ready["name"].as_str().unwrap();
        let (status, text) = ask(&board, &format!("/api/nodes/{name}/explain")).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(text, format!("{name} has {} pods", ready["podCount"]));
    })
    .unwrap();
}

#[test]
fn the_page_of_a_standby_shows_the_cluster_and_says_that_it_does_not_lead() {
    Testbed::in_virtual_time(async {
        let testbed = Testbed::builder().start().unwrap();
        let window = Window::watched();
        let standby = OperatorHandle::stand_by(&testbed, window.clone()).await;
        let board = board(&window);
        board.renew().await;
        let view = view(&board).await;
        assert_eq!((&view["leads"], &view["totals"]["nodes"]), (&false.into(), &0.into()));
        assert_eq!(view["log"].as_array().unwrap().len(), 0, "{view:#}");
        standby.stop().await.unwrap().unwrap();
    })
    .unwrap();
}
