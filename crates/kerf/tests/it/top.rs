//! `kerf top` as its users meet it, where there is no terminal.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::Stdio,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::kerf::{command, kerf, output, write_kubeconfig};

#[test]
fn the_document_has_the_verdicts_of_explain() {
    let file = ["-f", "examples/explain/cluster.yaml"];
    let (code, printed, errors) = kerf(&[&["top", "--once", "-o", "json"][..], &file].concat());
    assert_eq!((code, errors.as_str(), printed.lines().count()), (Some(0), "", 1));
    let document: Value = serde_json::from_str(&printed).unwrap();
    let nodes = document["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    let (_, explained, _) =
        kerf(&[&["explain", "nodepool/general", "-o", "json"][..], &file].concat());
    let explained: Value = serde_json::from_str(&explained).unwrap();
    for (node, verdict) in nodes.iter().zip(explained["nodes"].as_array().unwrap()) {
        assert_eq!(node["node"], verdict["node"]);
        assert_eq!(node["pricePerHour"], verdict["pricePerHour"], "{node}");
        assert_eq!(node["decision"], verdict["decision"], "{node}");
        let stays = verdict["decision"].is_null();
        assert_eq!(node["fate"], if stays { "stays" } else { "wouldGo" }, "{node}");
    }
    let totals = &document["totals"];
    assert_eq!((&totals["nodes"], &totals["nodesOfUnknownPrice"]), (&json!(3), &json!(0)));
    assert!(totals["pricePerHour"].is_string(), "{totals}");
}

#[test]
fn without_a_cluster_the_reason_is_said() {
    let (code, stdout, stderr) = kerf(&["top"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.starts_with("kerf: no Kubernetes cluster to connect to"), "{stderr}");
    let (code, _, stderr) = kerf(&["top", "--interval=1ms"]);
    let expected = "kerf: invalid value \"1ms\" for --interval: expected a duration of 100ms or more, such as 2s\n";
    assert_eq!((code, stderr.as_str()), (Some(2), expected));
}

type Requests = Arc<Mutex<Vec<String>>>;

/// An API server with one node, to which another comes by a watch. It refuses to list some kinds.
fn serve(refused: &'static [&'static str]) -> (String, Requests) {
    let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let (stream, seen) = (stream.unwrap(), Arc::clone(&seen));
            std::thread::spawn(move || answer(stream, refused, &seen));
        }
    });
    (url, requests)
}

fn answer(mut stream: TcpStream, refused: &[&str], requests: &Requests) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let Some(request) = head.first() else { return };
    let request = request.trim_end_matches(" HTTP/1.1").to_owned();
    let (path, query) = request.split_once('?').unwrap();
    let plural = path.rsplit('/').next().unwrap();
    let is_watch = query.contains("watch=true");
    let node = |name: &str| {
        let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "resourceVersion": "7"},
               "status": {"capacity": amounts, "allocatable": amounts}})
    };
    let (status, body) = match plural {
        plural if refused.contains(&plural) => (
            "403 Forbidden",
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                   "reason": "Forbidden", "message": format!("{plural} is forbidden")}),
        ),
        "nodes" if is_watch => ("200 OK", json!({"type": "ADDED", "object": node("late")})),
        _ => {
            let items = if plural == "nodes" { vec![node("early")] } else { Vec::new() };
            let list = json!({"kind": "SomeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"},
                              "items": items});
            ("200 OK", list)
        }
    };
    requests.lock().unwrap().push(request.clone());
    let (body, length) = match (is_watch, plural) {
        (true, "nodes") => (format!("{body}\n"), String::new()),
        (true, _) if status == "200 OK" => (String::new(), String::new()),
        _ => (body.to_string(), format!("content-length: {}\r\n", body.to_string().len())),
    };
    let head = format!("HTTP/1.1 {status}\r\n{length}connection: close\r\n\r\n");
    stream.write_all((head + &body).as_bytes()).unwrap();
    if is_watch && status == "200 OK" {
        // A watch stays open until the reader goes.
        let _ = BufReader::new(stream).lines().map_while(Result::ok).count();
    }
}

#[test]
fn a_cluster_is_followed_and_only_read() {
    let home = tempfile::tempdir().unwrap();
    let (url, requests) = serve(&[]);
    write_kubeconfig(home.path(), &url);
    let mut top = command(home.path(), &["top", "-o", "json", "--interval=100ms"]);
    let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
    let documents = BufReader::new(top.stdout.take().unwrap()).lines();
    let names = |document: &str| -> Vec<String> {
        let document: Value = serde_json::from_str(document).unwrap();
        let nodes = document["nodes"].as_array().unwrap();
        nodes.iter().map(|node| node["node"].as_str().unwrap().to_owned()).collect()
    };
    // The test ends when it comes; the runner has a limit for tests that do not.
    let found = documents.map_while(Result::ok).find(|it| names(it).contains(&"late".to_owned()));
    top.kill().unwrap();
    top.wait().unwrap();
    assert_eq!(names(&found.unwrap()), ["early", "late"]);
    let requests = requests.lock().unwrap();
    assert!(requests.iter().all(|request| request.starts_with("GET ")), "{requests:?}");
    let lists = requests.iter().filter(|it| it.contains("/nodes?") && !it.contains("watch=true"));
    assert_eq!(lists.count(), 1, "listed once and watched after that: {requests:?}");
}

#[test]
fn a_kind_that_may_not_be_read_is_named() {
    let home = tempfile::tempdir().unwrap();
    let (url, _) = serve(&["poddisruptionbudgets"]);
    write_kubeconfig(home.path(), &url);
    let (code, stdout, stderr) = output(command(home.path(), &["top", "--once"]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    // The other node comes by the watch, before the picture is drawn or after it.
    assert!(stdout.contains("\n  early "), "{stdout}");
    let note = "Note: cannot list poddisruptionbudgets: poddisruptionbudgets is forbidden; reasons are shown as if there \
                were no poddisruptionbudgets\n";
    assert!(stdout.contains(note), "{stdout}");

    let home = tempfile::tempdir().unwrap();
    let (url, _) = serve(&["nodes"]);
    write_kubeconfig(home.path(), &url);
    let (code, stdout, stderr) = output(command(home.path(), &["top", "--once"]));
    let expected = "kerf: cannot list nodes: nodes is forbidden\n";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(1), "", expected));
}
