//! `kerf plan` and `kerf snapshot` on a cluster: it is only read.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::kerf::{command, output, printed, write_kubeconfig};

/// An API server with these objects, and the requests that it got.
fn serve(objects: Vec<Value>) -> (String, Arc<Mutex<Vec<String>>>) {
    let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let request = head[0].trim_end_matches(" HTTP/1.1").to_owned();
            let (status, body) = answer(&request, &objects);
            seen.lock().unwrap().push(request);
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    (url, requests)
}

/// One object to a page, so that paging is needed; custom resources that nobody installed.
fn answer(request: &str, objects: &[Value]) -> (&'static str, String) {
    let asked = request.trim_start_matches("GET ");
    let (path, query) = asked.split_once('?').unwrap_or((asked, ""));
    let plural = path.rsplit('/').next().unwrap();
    let missing = || {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                            "reason": "NotFound", "message": "the server could not find the requested resource"});
        ("404 Not Found", status.to_string())
    };
    if plural == "nodeclaims" && !objects.iter().any(|object| object["kind"] == "NodeClaim") {
        return missing();
    }
    let is_of = |object: &Value, plural: &str| {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        format!("{kind}s") == plural || format!("{kind}es") == plural
    };
    if let Some((_, named)) = path.split_once("/namespaces/") {
        let [namespace, kind, name] = named.splitn(3, '/').collect::<Vec<_>>()[..] else {
            return missing();
        };
        let is_it = |object: &&Value| {
            let metadata = &object["metadata"];
            is_of(object, kind) && metadata["namespace"] == namespace && metadata["name"] == name
        };
        let found = objects.iter().find(is_it);
        return found.map_or_else(missing, |object| ("200 OK", object.to_string()));
    }
    let mut of_kind = objects.iter().filter(|object| is_of(object, plural));
    let token = query.split('&').find_map(|part| part.strip_prefix("continue="));
    let page: usize = token.map_or(0, |token| token.parse().unwrap());
    let mut item = of_kind.nth(page).cloned();
    if let Some(fields) = item.as_mut().and_then(Value::as_object_mut) {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    let more = of_kind.next().map(|_| (page + 1).to_string());
    let items: Vec<_> = item.into_iter().collect();
    let list = json!({"kind": "SomeList", "apiVersion": "v1", "metadata": {"continue": more}, "items": items});
    ("200 OK", list.to_string())
}

#[test]
fn a_cluster_is_only_read_and_its_snapshot_gives_the_same_plan() {
    let text = fs::read_to_string("../../examples/plan/cluster.json").unwrap();
    let dump: Value = serde_json::from_str(&text).unwrap();
    let mut objects = dump["items"].as_array().unwrap().clone();
    // A server without the custom resource has no claims either.
    objects.retain(|object| object["kind"] != "NodeClaim");
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef":
            {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}},
    });
    objects.push(pool);
    objects.push(json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": "default", "generation": 3, "annotations": {"last-applied": "a"}},
        "spec": {"nodeRegistrationDelay": "7s"},
    }));
    let home = tempfile::tempdir().unwrap();
    let (url, requests) = serve(objects.clone());
    write_kubeconfig(home.path(), &url);

    let (code, live, stderr) = output(command(home.path(), &["plan"]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(live.contains("shop/api-6d5f-2") && live.contains("Launch 1 node"), "{live}");

    let file = home.path().join("snapshot.json");
    fs::write(&file, "what was there before").unwrap();
    let path = file.display().to_string();
    let (code, stdout, stderr) =
        output(command(home.path(), &["snapshot", &format!("--output-file={path}")]));
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    let progress: Vec<_> = stderr.lines().collect();
    assert_eq!(progress.len(), 18, "{stderr}");
    for read in ["read 3 pods", "read 0 nodeclaims", "read 1 kwoknodeclasses"] {
        assert!(progress.contains(&read), "{read}\n{stderr}");
    }
    assert_eq!(printed(&["plan", "-f", &path]), live);

    let (code, stdout, _) = output(command(home.path(), &["snapshot"]));
    let written = fs::read_to_string(&file).unwrap();
    let (first, objects) = stdout.split_once('\n').unwrap();
    assert_eq!((code, objects), (Some(0), written.split_once('\n').unwrap().1));
    let start = r#"{"apiVersion": "v1", "kind": "List", "takenAt": "20"#;
    assert!(first.starts_with(start) && first.ends_with(r#"Z", "items": ["#), "{first}");
    for absent in
        ["plans-do-not-read-this", "last-applied", "ConfigMap", "image", "args", "resourceVersion"]
    {
        assert!(!stdout.contains(absent), "{absent}\n{stdout}");
    }
    assert!(stdout.contains(r#""spec":{"nodeRegistrationDelay":"7s"}"#), "{stdout}");
    // Nothing was left beside it.
    let files = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(files.filter(|name| name != ".kube" && name != "snapshot.json").count(), 0);

    for request in requests.lock().unwrap().iter() {
        assert!(request.starts_with("GET "), "{request}");
        assert!(!request.contains("secrets") && !request.contains("configmaps"), "{request}");
        assert!(!request.contains("watch"), "{request}");
    }
}

#[test]
fn buffers_of_a_cluster_and_what_they_refer_to_are_read() {
    let text = fs::read_to_string("../../examples/plan/cluster.json").unwrap();
    let dump: Value = serde_json::from_str(&text).unwrap();
    let mut objects = dump["items"].as_array().unwrap().clone();
    let container = json!({
        "name": "web", "image": "plans-do-not-read-this", "resources": {"requests": {"cpu": "1"}},
    });
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let metadata = |name: &str| json!({"name": name, "namespace": "shop"});
    let buffer = |name: &str, spec: Value| {
        let kind = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer"});
        let (api_version, kind) = (kind["apiVersion"].clone(), kind["kind"].clone());
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata(name), "spec": spec})
    };
    objects.extend([
        buffer(
            "of-a-workload",
            json!({"scalableRef": {"kind": "StatefulSet", "name": "web"}, "percentage": 50}),
        ),
        buffer("of-a-template", json!({"podTemplateRef": {"name": "shape"}, "replicas": 3})),
        buffer("of-nothing", json!({"podTemplateRef": {"name": "gone"}, "replicas": 3})),
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata("web"),
            "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata("other"),
            "spec": {"replicas": 9, "selector": {"matchLabels": {"app": "x"}}, "template": template},
        }),
        json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata("shape"), "template": template,
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]},
            "metadata": {
                "name": "web-0", "namespace": "shop", "labels": {"app": "web"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true, "uid": "1"}],
            },
        }),
    ]);
    let home = tempfile::tempdir().unwrap();
    let (url, _) = serve(objects);
    write_kubeconfig(home.path(), &url);
    let gate = "--feature-gates=CapacityBuffer=true";
    let (code, live, stderr) = output(command(home.path(), &["plan", gate]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let rooms = live.split_once("Keep room for 3 buffers").expect(&live).1;
    let room = |name: &str| {
        let row = rooms.lines().find(|row| row.contains(name)).expect(rooms);
        let numbers = row.split_whitespace().skip(1).take(3);
        numbers.map(|number| number.parse::<u32>().expect(row)).sum::<u32>()
    };
    // Half of four, and three.
    assert_eq!((room("of-a-workload"), room("of-a-template")), (2, 3), "{live}");

    let (code, written, stderr) = output(command(home.path(), &["snapshot"]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!written.contains("plans-do-not-read-this"), "{written}");
    assert_eq!(written.matches(r#""replicas":4"#).count(), 1, "{written}");
    assert!(!written.contains(r#""replicas":9"#), "only what a buffer refers to counts: {written}");
    let file = home.path().join("snapshot.json");
    fs::write(&file, written).unwrap();
    assert_eq!(printed(&["plan", gate, "-f", &file.display().to_string()]), live);
}

#[test]
fn node_classes_that_this_build_does_not_know_are_named() {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef":
            {"group": "cloud.example", "kind": "ExampleNodeClass", "name": "default"}}}},
    });
    let home = tempfile::tempdir().unwrap();
    let (url, requests) = serve(vec![pool]);
    write_kubeconfig(home.path(), &url);
    let (code, _, stderr) = output(command(home.path(), &["snapshot"]));
    assert_eq!(code, Some(0));
    let said = "left out ExampleNodeClass: this build of kerf has no provider for it";
    assert_eq!(stderr.lines().last(), Some(said), "{stderr}");
    // Where roles are narrow, the server refuses to list a kind that it does not even have.
    let asked = requests.lock().unwrap().iter().any(|one| one.contains("nodeclasses"));
    assert!(!asked, "kinds that nothing refers to are not asked for");
}

#[test]
fn a_cluster_that_cannot_be_read_is_named() {
    let home = tempfile::tempdir().unwrap();
    for name in ["plan", "snapshot"] {
        let (code, stdout, stderr) = output(command(home.path(), &[name]));
        assert_eq!((code, stdout.as_str()), (Some(1), ""));
        assert!(stderr.starts_with("kerf: no Kubernetes cluster to connect to: "), "{stderr}");
    }
    // Bound and closed again: a port that refuses connections.
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    write_kubeconfig(home.path(), &format!("http://127.0.0.1:{port}"));
    for name in ["plan", "snapshot"] {
        let (code, _, stderr) = output(command(home.path(), &[name]));
        assert_eq!(code, Some(1));
        assert!(stderr.starts_with("kerf: cannot list nodepools: "), "{stderr}");
        assert!(stderr.contains("refused"), "{stderr}");
    }
}

/// From a cluster that Karpenter runs on AWS to a report, with rights to read alone.
#[cfg(feature = "aws")]
#[test]
fn a_snapshot_of_karpenter_on_aws_can_be_simulated_and_has_no_secrets() {
    let text = fs::read_to_string("../../examples/aws/cluster.json").unwrap();
    let dump: Value = serde_json::from_str(&text).unwrap();
    let mut objects = dump["items"].as_array().unwrap().clone();
    for object in &mut objects {
        match object["kind"].as_str().unwrap() {
            "EC2NodeClass" => {
                object["spec"]["userData"] = "PASSWORD=hunter2".into();
                object["spec"]["role"] = "hunter2-role".into();
            }
            "Pod" => {
                let container = &mut object["spec"]["containers"][0];
                container["env"] = json!([{"name": "PASSWORD", "value": "hunter2"}]);
                container["args"] = json!(["--password=hunter2"]);
                object["metadata"]["annotations"] = json!({"example.com/token": "hunter2"});
            }
            _ => {}
        }
    }
    let home = tempfile::tempdir().unwrap();
    let (url, requests) = serve(objects);
    write_kubeconfig(home.path(), &url);
    let (code, written, stderr) = output(command(home.path(), &["snapshot"]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("read 1 ec2nodeclasses"), "{stderr}");
    assert!(
        written.contains(r#""zone":"us-east-1b""#) && !written.contains("hunter2"),
        "{written}"
    );
    for request in requests.lock().unwrap().iter() {
        assert!(request.starts_with("GET ") && !request.contains("watch"), "{request}");
    }
    let file = home.path().join("cluster.json");
    fs::write(&file, written).unwrap();
    let path = file.display().to_string();
    let table = printed(&["simulate", &path, "--policy=as-is", "--length=10m"]);
    assert!(table.contains("as-is"), "{table}");
}
