//! The page and its data over HTTP. Connections have the limits of the operator's other endpoints: `admin::serve` answers them.
//!
//! Names of objects are the words of strangers. They reach the page as JSON and are set as text, and the page may load
//! nothing from elsewhere, so that markup in a name stays a name.

use std::net::IpAddr;

use axum::{
    Router,
    extract::{Path, Request, State},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, uri::Authority};

use crate::board::Board;

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");
const ICON: &str = include_str!("page/icon.svg");

/// Who can reach the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This machine alone. Pages of other sites, which run in browsers here, are kept out by the name that they ask for.
    Loopback,
    Anywhere,
}

impl Place {
    pub fn of(address: IpAddr) -> Self {
        if address.is_loopback() { Self::Loopback } else { Self::Anywhere }
    }

    /// Whether a request may ask for this host. A name that someone else owns can be made to lead to loopback (DNS
    /// rebinding), and a browser would then let that site read the page.
    fn lets_in(self, host: Option<&str>) -> bool {
        if self == Self::Anywhere {
            return true;
        }
        let Some(authority) = host.and_then(|host| host.parse::<Authority>().ok()) else {
            return false;
        };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_loopback = || name.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        name.eq_ignore_ascii_case("localhost") || is_loopback()
    }
}

/// The page at `/`, what it shows at `/api/view`, and a node's explanation at `/api/nodes/NAME/explain`.
pub fn routes(board: Board, place: Place) -> Router {
    let file = |kind: &'static str, text: &'static str| {
        get(async move || ([(header::CONTENT_TYPE, kind)], text))
    };
    Router::new()
        .route("/", file("text/html; charset=utf-8", PAGE))
        .route("/style.css", file("text/css; charset=utf-8", STYLE))
        .route("/script.js", file("text/javascript; charset=utf-8", SCRIPT))
        .route("/icon.svg", file("image/svg+xml", ICON))
        .route("/api/view", get(view))
        .route("/api/nodes/{name}/explain", get(explain))
        .with_state(board)
        .layer(from_fn_with_state(place, guard))
}

async fn view(State(board): State<Board>, headers: HeaderMap) -> Response {
    let shown = board.shown();
    let known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let etag = [(header::ETAG, shown.etag.clone())];
    if known.is_some_and(|known| known.split(',').any(|one| one.trim() == shown.etag)) {
        return (StatusCode::NOT_MODIFIED, etag).into_response();
    }
    (etag, [(header::CONTENT_TYPE, "application/json")], shown.body).into_response()
}

async fn explain(State(board): State<Board>, Path(name): Path<String>) -> Response {
    let explained = {
        let name = name.clone();
        tokio::task::spawn_blocking(move || board.explain(&name)).await
    };
    let text = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    match explained {
        Ok(Some(explanation)) => (text, explanation).into_response(),
        Ok(None) => {
            let answer = format!("There is no node {name}. It may have gone meanwhile.\n");
            (StatusCode::NOT_FOUND, text, answer).into_response()
        }
        Err(_) => {
            let answer = "The node cannot be explained; the log of the operator says why.\n";
            (StatusCode::INTERNAL_SERVER_ERROR, text, answer).into_response()
        }
    }
}

const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Lets in who may come in, and says what a browser may do with any answer.
async fn guard(State(place): State<Place>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let mut response = if place.lets_in(host) {
        next.run(request).await
    } else {
        let refusal = "This page is served on loopback only, and answers to localhost, 127.0.0.1 and [::1]. \
                       Ask for it by one of these names, or set --dashboard-address.\n";
        (StatusCode::FORBIDDEN, refusal).into_response()
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{View, view::About};
    use axum::body::Body;
    use http_body_util::BodyExt;
    use kerf_controllers::window::Window;
    use std::sync::Arc;
    use tower::ServiceExt;

    async fn ask(request: http::request::Builder) -> (StatusCode, HeaderMap, String) {
        let explain = Arc::new(|_: &kerf_model::Snapshot, _: &str| None);
        let board = Board::new(Window::watched(), About::default(), explain);
        let request = request.body(Body::empty()).unwrap();
        let response = routes(board, Place::Loopback).oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, headers, String::from_utf8(body.to_vec()).unwrap())
    }

    fn get(path: &str) -> http::request::Builder {
        Request::get(path).header(header::HOST, "localhost:8082")
    }

    #[tokio::test]
    async fn every_answer_forbids_to_load_anything_from_elsewhere() {
        for path in ["/", "/style.css", "/script.js", "/icon.svg", "/api/view", "/nothing"] {
            let (status, headers, _) = ask(get(path)).await;
            assert_eq!(status.is_success(), path != "/nothing", "{path}");
            for (name, value) in HEADERS {
                assert_eq!(headers[&name], value, "{path} {name}");
            }
        }
        let (_, headers, _) = ask(get("/").header(header::HOST, "evil.example")).await;
        assert!(headers.contains_key(header::CONTENT_SECURITY_POLICY), "refusals, too");
    }

    #[test]
    fn on_loopback_only_names_of_loopback_are_answered() {
        for (host, expected) in [
            (Some("localhost"), true),
            (Some("LocalHost:8082"), true),
            (Some("127.0.0.1:8082"), true),
            (Some("127.9.9.9"), true),
            (Some("[::1]:8082"), true),
            (Some("[::1]"), true),
            (Some("evil.example:8082"), false),
            (Some("localhost.evil.example"), false),
            (Some("127.0.0.1.evil.example"), false),
            (Some("10.0.0.1"), false),
            (Some(""), false),
            (Some("a b"), false),
            (None, false),
        ] {
            assert_eq!(Place::Loopback.lets_in(host), expected, "{host:?}");
            assert!(Place::Anywhere.lets_in(host), "{host:?}");
        }
        for (address, place) in [
            ("127.0.0.1", Place::Loopback),
            ("::1", Place::Loopback),
            ("0.0.0.0", Place::Anywhere),
            ("10.0.0.1", Place::Anywhere),
        ] {
            assert_eq!(Place::of(address.parse().unwrap()), place, "{address}");
        }
    }

    #[tokio::test]
    async fn a_request_by_another_name_is_refused_and_told_why() {
        let request = Request::get("/api/view").header(header::HOST, "evil.example");
        let (status, _, body) = ask(request).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!(body.contains("--dashboard-address"), "{body}");
    }

    #[tokio::test]
    async fn nothing_can_be_written() {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let request = get("/api/view").method(method);
            assert_eq!(ask(request).await.0, StatusCode::METHOD_NOT_ALLOWED, "{method}");
        }
    }

    #[tokio::test]
    async fn a_view_that_is_known_is_not_sent_again() {
        let (status, headers, body) = ask(get("/api/view")).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers[header::CONTENT_TYPE], "application/json");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["nothing"], "the operator is starting");
        let known = headers[header::ETAG].to_str().unwrap();
        for (known, expected) in [
            (known.to_owned(), StatusCode::NOT_MODIFIED),
            (format!("\"old\", {known}"), StatusCode::NOT_MODIFIED),
            ("\"old\"".to_owned(), StatusCode::OK),
        ] {
            let (status, _, body) =
                ask(get("/api/view").header(header::IF_NONE_MATCH, &known)).await;
            assert_eq!(
                (status, body.is_empty()),
                (expected, expected != StatusCode::OK),
                "{known}"
            );
        }
    }

    #[tokio::test]
    async fn a_node_that_is_not_there_is_said_to_be_gone() {
        let (status, headers, body) = ask(get("/api/nodes/%3Cb%3E/explain")).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(headers[header::CONTENT_TYPE], "text/plain; charset=utf-8");
        assert_eq!(body, "There is no node <b>. It may have gone meanwhile.\n");
    }

    /// The policy forbids all of these; a browser would only say so in its console.
    #[test]
    fn the_page_needs_nothing_that_its_policy_forbids() {
        for (file, text) in [("index.html", PAGE), ("style.css", STYLE), ("icon.svg", ICON)] {
            for forbidden in ["http:", "https:", "//", "onclick", "onload", "javascript:", "style="]
            {
                let allowed = file == "icon.svg" && forbidden != "onload";
                assert!(allowed || !text.contains(forbidden), "{file} has {forbidden}");
            }
        }
        for forbidden in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function("]
        {
            assert!(!SCRIPT.contains(forbidden), "script.js has {forbidden}");
        }
        assert!(!PAGE.contains("<style") && !PAGE.contains("<script>"), "nothing inline");
    }

    #[test]
    fn names_of_objects_are_data() {
        let look = crate::view::tests::hostile();
        let body = serde_json::to_string(&View::of(&look, &[], &[], &About::default())).unwrap();
        let read: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(read["nodes"][0]["name"], crate::view::tests::HOSTILE);
    }
}
