//! `kerf snapshot`: the cluster as decisions see it, in a file.

use std::{
    collections::BTreeMap,
    error::Error as _,
    fmt,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use jiff::Timestamp;
use kerf_manifests::{
    BufferTarget, dumped, dumped_node_class, dumped_resources, dumped_with_template,
    referenced_node_classes, targets_of_buffers,
};
use kerf_runtime::{
    Clock, Fence, Metrics,
    client::{self, Connection, RequestMetrics, Target},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::Value;

use crate::{
    cli::{SnapshotOptions, VERSION},
    exit,
    output::{Pending, Readers},
    providers,
};

/// Roles that were made before these kinds came do not grant them.
const MAY_BE_REFUSED: [&str; 2] = ["NodeOverlay", "CapacityBuffer"];

/// Objects per request, as kubectl has it.
const PAGE: u32 = 500;

/// Why the cluster could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Connection(#[from] client::Error),
    #[error("cannot list {plural}: {problem}")]
    List { plural: String, problem: String },
    #[error("cannot watch {plural}: {problem}")]
    Watch { plural: String, problem: String },
}

#[derive(Debug, thiserror::Error)]
enum SnapshotError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
}

pub(crate) fn snapshot(options: &SnapshotOptions) -> ExitCode {
    match take(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kerf: {error}");
            exit::FAILED.into()
        }
    }
}

fn take(options: &SnapshotOptions) -> Result<(), SnapshotError> {
    let path = options.output_file.clone().unwrap_or_else(|| PathBuf::from("standard output"));
    let unwritable = |source| SnapshotError::Write { path: path.display().to_string(), source };
    // First: a large cluster is not read for a file that cannot be written.
    let file = options.output_file.as_ref().map(|path| Pending::open(path, Readers::Owner));
    let file = file.transpose().map_err(unwritable)?;
    let taken_at = Clock::system().now();
    let ReadCluster { objects, .. } =
        read_cluster(&options.target, |progress| eprintln!("{progress}"))?;
    let written = match file {
        None => match write(&objects, taken_at, &mut io::stdout().lock()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        },
        Some(file) => file.finish(|to| write(&objects, taken_at, to)),
    };
    written.map_err(unwritable)
}

/// As a list that kubectl and `kerf plan` read, one object to a line so that two of them can be compared.
fn write(objects: &[Value], taken_at: Timestamp, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    let head = r#""apiVersion": "v1", "kind": "List""#;
    writeln!(to, "{{{head}, \"takenAt\": \"{taken_at:.0}\", \"items\": [")?;
    for (index, object) in objects.iter().enumerate() {
        let end = if index + 1 == objects.len() { "" } else { "," };
        serde_json::to_writer(&mut to, object)?;
        writeln!(to, "{end}")?;
    }
    writeln!(to, "]}}")?;
    to.flush()
}

/// What becomes of a kind.
pub(crate) enum Progress<'a> {
    Read { plural: &'a str, count: usize },
    LeftOut { kind: &'a str },
    Refused { kind: &'a str, problem: &'a str },
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { plural, count } => write!(f, "read {count} {plural}"),
            Self::LeftOut { kind } => {
                write!(f, "left out {kind}: this build of kerf has no provider for it")
            }
            Self::Refused { kind, problem } => write!(f, "left out {kind}: {problem}"),
        }
    }
}

/// What was read.
pub(crate) struct ReadCluster {
    pub(crate) objects: Vec<Value>,
    /// That of the context.
    pub(crate) namespace: String,
    /// Kinds that were refused, and why.
    pub(crate) refused: BTreeMap<String, String>,
}

/// Lists everything that decisions depend on, trimmed to what they use. Nothing is written, and secrets and
/// config maps are not asked for.
pub(crate) fn read_cluster(
    target: &Target,
    progress: impl FnMut(Progress<'_>),
) -> Result<ReadCluster, ReadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(ReadError::Runtime)?.block_on(read_all(target, progress))
}

/// A client that only reads, with what its kubeconfig says.
pub(crate) struct Connected {
    pub(crate) client: Client,
    /// The address of the API server.
    pub(crate) server: String,
    /// That of the context.
    namespace: String,
}

pub(crate) async fn connect(target: &Target) -> Result<Connected, ReadError> {
    let mut config = client::config_of(target).await?;
    let (server, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
    // Whoever waits at a prompt is told at once.
    config.default_retry = false;
    let user_agent = format!("kerf/{VERSION}");
    let metrics = RequestMetrics::register(&Metrics::default());
    let connection = Connection { config, user_agent: &user_agent, metrics: &metrics };
    // It only reads, and a closed fence holds it to that.
    let client = connection.client(None, Fence::closed(Clock::system()))?;
    Ok(Connected { client, server, namespace })
}

async fn read_all(
    target: &Target,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<ReadCluster, ReadError> {
    let Connected { client, namespace, .. } = connect(target).await?;
    let (mut objects, mut refused) = (Vec::new(), BTreeMap::new());
    for resource in dumped_resources() {
        let before = objects.len();
        let listed = list(&client, &resource, &mut objects, |item| dumped(item, &resource)).await;
        match listed {
            Err(error @ ReadError::List { .. }) if MAY_BE_REFUSED.contains(&&*resource.kind) => {
                let problem = error.to_string();
                progress(Progress::Refused { kind: &resource.kind, problem: &problem });
                refused.insert(resource.kind, problem);
                continue;
            }
            listed => drop(listed?),
        }
        progress(Progress::Read { plural: &resource.plural, count: objects.len() - before });
    }
    for target in targets_of_buffers(&objects) {
        match add_target(&client, &target, &mut objects).await {
            Ok(()) => {}
            Err(error) => {
                let BufferTarget { kind, namespace, name } = &target;
                let problem = format!("cannot get {namespace}/{name}: {}", cause(&error));
                progress(Progress::Refused { kind, problem: &problem });
                refused.insert(kind.clone(), problem);
            }
        }
    }
    // Other kinds may not exist, and whoever may not list them is refused all the same.
    for (group, kind) in referenced_node_classes(&objects) {
        let Some((resource, fields)) = providers::node_class(&group, &kind) else {
            progress(Progress::LeftOut { kind: &kind });
            continue;
        };
        let before = objects.len();
        let trimmed = |item| dumped_node_class(item, &resource, fields);
        list(&client, &resource, &mut objects, trimmed).await?;
        progress(Progress::Read { plural: &resource.plural, count: objects.len() - before });
    }
    Ok(ReadCluster { objects, namespace, refused })
}

/// Adds what a buffer refers to, in the place of what is there of it; nothing if there is no such thing.
async fn add_target(
    client: &Client,
    target: &BufferTarget,
    objects: &mut Vec<Value>,
) -> Result<(), kube::Error> {
    let Some(resource) = target.resource() else { return Ok(()) };
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &target.namespace, &resource);
    let found = api.get_opt(&target.name).await?;
    if let Some(Ok(found)) = found.map(serde_json::to_value) {
        objects.retain(|object| !target.is(object));
        objects.push(dumped_with_template(found, &resource));
    }
    Ok(())
}

/// Adds all objects of a kind, and says at which revision they were like that; nothing where the kind is not there.
pub(crate) async fn list(
    client: &Client,
    resource: &ApiResource,
    objects: &mut Vec<Value>,
    trimmed: impl Fn(Value) -> Value,
) -> Result<Option<String>, ReadError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let from = objects.len();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = match api.list(&parameters).await {
            Ok(page) => page,
            // A cluster without the custom resources has no objects of them.
            Err(kube::Error::Api(status)) if status.code == 404 && is_custom(resource) => {
                return Ok(None);
            }
            // The server forgot where the last page ended: all in one go, then.
            Err(kube::Error::Api(status)) if status.code == 410 && parameters.limit.is_some() => {
                objects.truncate(from);
                parameters = ListParams::default();
                continue;
            }
            Err(error) => {
                let (plural, problem) = (resource.plural.clone(), cause(&error));
                return Err(ReadError::List { plural, problem });
            }
        };
        let items = page.items.into_iter().filter_map(|item| serde_json::to_value(item).ok());
        objects.extend(items.map(&trimmed));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(Some(page.metadata.resource_version.unwrap_or_default())),
        }
    }
}

fn is_custom(resource: &ApiResource) -> bool {
    resource.group.contains('.') && !resource.group.ends_with(".k8s.io")
}

/// What the server said, or the innermost error: the outer ones say only that a request failed.
pub(crate) fn cause(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}
