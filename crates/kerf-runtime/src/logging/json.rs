//! One JSON object per line, with the keys that log pipelines made for Karpenter look for.

use std::fmt::{self, Write};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::{LookupSpan, Scope},
};

#[derive(Debug)]
pub(super) struct Lines {
    pub(super) commit: Option<&'static str>,
    /// Whether to say which line of code wrote the entry.
    pub(super) caller: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);

        let mut line = Line::default();
        let metadata = event.metadata();
        line.add("level", metadata.level().as_str());
        line.add("time", format!("{:.3}", Timestamp::now()));
        line.add("logger", "controller");
        if self.caller
            && let Some((file, number)) = metadata.file().zip(metadata.line())
        {
            line.add("caller", format!("{file}:{number}"));
        }
        line.add("message", fields.message);
        if let Some(commit) = self.commit {
            line.add("commit", commit);
        }
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            // Spans keep their fields as JSON text (`JsonFields`), a format made for splicing.
            let Some(stored) = extensions.get::<FormattedFields<N>>() else { continue };
            let object: Map<String, Value> = serde_json::from_str(stored).unwrap_or_default();
            for (key, value) in object {
                line.add(&key, value);
            }
        }
        for (key, value) in nested(fields.rest) {
            line.add(key, value);
        }
        writeln!(writer, "{}", line.finish())
    }
}

/// `NodePool.name` becomes a member of the object `NodePool`, which is how Karpenter names objects.
fn nested(fields: Vec<(&'static str, Value)>) -> Vec<(&'static str, Value)> {
    let mut all: Vec<(&'static str, Value)> = Vec::with_capacity(fields.len());
    for (key, value) in fields {
        let Some((object, member)) = key.split_once('.') else {
            all.push((key, value));
            continue;
        };
        match all.iter_mut().find(|(known, value)| *known == object && value.is_object()) {
            Some((_, members)) => members[member] = value,
            None => all.push((object, serde_json::json!({ member: value }))),
        }
    }
    all
}

/// A JSON object whose keys stay in the order they were added.
#[derive(Default)]
struct Line(String);

impl Line {
    fn add(&mut self, key: &str, value: impl Into<Value>) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        let _ = write!(self.0, "{}:{}", Value::from(key), value.into());
    }

    fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[derive(Default)]
struct Fields {
    message: Value,
    rest: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        match field.name() {
            "message" => self.message = value,
            name => self.rest.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}
