//! The types of kerf-aws-wire, from AWS's own service models and the list of what we use of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::aws_shapes::{Selection, Service};
use crate::aws::Outcome;
use crate::cargo::workspace;
use crate::python;

/// Writes the types, or says with `check` whether they are stale.
pub(crate) fn run(check: bool) -> Result<Outcome> {
    let home = workspace().join("crates/kerf-aws-wire");
    let selection = Selection::parse(&fs::read_to_string(home.join("shapes.txt"))?)?;
    let models = match python::packages(
        &home.join("botocore.txt"),
        &["--no-deps", "--require-hashes", "--only-binary", ":all:"],
    )? {
        Ok(packages) => packages.join("botocore/data"),
        Err(python::Missing(reason)) => return Ok(Outcome::Skipped { reason }),
    };
    for service in &selection.services {
        let model = read_model(&models, &service.name)?;
        let code = generate(service, &model).with_context(|| service.name.clone())?;
        let file = home.join("src/generated").join(format!("{}.rs", service.module()));
        if !check {
            fs::write(&file, code)?;
        } else if fs::read_to_string(&file).ok().as_deref() != Some(&code) {
            bail!("{} is stale: run `cargo xtask generate`", file.display());
        }
    }
    Ok(Outcome::Done)
}

/// The newest model of a service.
fn read_model(models: &Path, service: &str) -> Result<Value> {
    let mut versions: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(models.join(service)).with_context(|| format!("no {service}"))? {
        versions.push(entry?.path().join("service-2.json.gz"));
    }
    versions.retain(|version| version.exists());
    let newest = versions.into_iter().max().with_context(|| format!("no model of {service}"))?;
    let unzip = "import gzip, sys; sys.stdout.buffer.write(gzip.open(sys.argv[1]).read())";
    Ok(serde_json::from_slice(&python::output(unzip, &[&newest])?)?)
}

/// A structure that is to be written, and the sides of a call on which it occurs.
#[derive(Default)]
struct Use {
    model_name: String,
    request: bool,
    response: bool,
}

fn generate(service: &Service, model: &Value) -> Result<String> {
    let metadata = &model["metadata"];
    let ec2 = metadata["protocol"] == "ec2";
    let mut shapes: BTreeMap<String, Use> = BTreeMap::new();
    let mut calls = String::new();
    for name in &service.operations {
        let operation = &model["operations"][name];
        ensure!(operation.is_object(), "there is no operation {name}");
        for (side, key) in [(Side::Request, "input"), (Side::Response, "output")] {
            let own =
                format!("{name}{}", if side == Side::Request { "Request" } else { "Response" });
            let of_model = operation[key]["shape"].as_str().unwrap_or_default();
            reach(&own, of_model, side, service, model, &mut shapes)?;
        }
        let path = match operation["http"]["requestUri"].as_str() {
            None | Some("/") => String::new(),
            Some(path) => {
                ensure!(operation["http"]["method"] == "GET", "{name} is not a GET");
                format!("[{path:?}]")
            }
        };
        let input = &model["shapes"][operation["input"]["shape"].as_str().unwrap_or_default()];
        let is_token =
            |member: &&String| input["members"][member.as_str()]["idempotencyToken"] == true;
        let token = service.shapes[&format!("{name}Request")].iter().find(is_token);
        let token = token.map(|token| format!("({})", field(token))).unwrap_or_default();
        writeln!(calls, "    {name}{path}{token}: {name}Request -> {name}Response,")?;
    }
    let unused: Vec<_> = service.shapes.keys().filter(|name| !shapes.contains_key(*name)).collect();
    ensure!(unused.is_empty(), "no operation reaches {unused:?}");

    let mut times = false;
    let mut structures = String::new();
    for (name, usage) in &shapes {
        let members = &service.shapes[name];
        if members.is_empty() {
            writeln!(structures, "\nshape!({name} {{}});")?;
            continue;
        }
        writeln!(structures, "\nshape!({name} {{")?;
        for member in members {
            let of_model = &model["shapes"][&usage.model_name]["members"][member];
            let rust = rust_type(of_model["shape"].as_str().unwrap_or_default(), model)?;
            times |= rust.contains("Timestamp");
            let names = names(member, of_model, ec2, usage);
            writeln!(structures, "    {}: {rust} = {names},", field(member))?;
        }
        writeln!(structures, "}});")?;
    }

    let mut code = String::from(
        "// Made by `cargo xtask generate` from AWS's service models and shapes.txt; do not edit.\n\n",
    );
    if times {
        writeln!(code, "use jiff::Timestamp;\n")?;
    }
    code.push_str(
        "use crate::operation::{Protocol, Service, operations};\nuse crate::shape::shape;\n\n",
    );
    code.push_str(&service_constant(metadata)?);
    writeln!(code, "\noperations! {{\n{calls}}}\n{structures}")?;
    Ok(code.replace("}\n\n\nshape", "}\n\nshape").trim_end().to_owned() + "\n")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Request,
    Response,
}

/// Marks a structure and all that it is made of as used on this side.
fn reach(
    name: &str,
    of_model: &str,
    side: Side,
    service: &Service,
    model: &Value,
    shapes: &mut BTreeMap<String, Use>,
) -> Result<()> {
    let members =
        service.shapes.get(name).with_context(|| format!("{name} has no line in shapes.txt"))?;
    let usage = shapes.entry(name.to_owned()).or_default();
    let seen = if side == Side::Request { &mut usage.request } else { &mut usage.response };
    if std::mem::replace(seen, true) {
        return Ok(());
    }
    of_model.clone_into(&mut usage.model_name);
    let known = &model["shapes"][of_model]["members"];
    for member in members {
        let shape =
            known[member]["shape"].as_str().with_context(|| format!("{name} has no {member}"))?;
        let mut shape = shape;
        while model["shapes"][shape]["type"] == "list" {
            shape = model["shapes"][shape]["member"]["shape"].as_str().unwrap_or_default();
        }
        if model["shapes"][shape]["type"] == "structure" {
            reach(shape, shape, side, service, model, shapes)?;
        }
    }
    Ok(())
}

fn rust_type(shape: &str, model: &Value) -> Result<String> {
    let of_model = &model["shapes"][shape];
    let inner = |shape: &str| -> Result<String> {
        Ok(match model["shapes"][shape]["type"].as_str() {
            Some("structure") => shape.to_owned(),
            Some("string") => "String".to_owned(),
            Some("boolean") => "bool".to_owned(),
            Some("integer") => "i32".to_owned(),
            Some("long") => "i64".to_owned(),
            Some("double" | "float") => "f64".to_owned(),
            Some("timestamp") => "Timestamp".to_owned(),
            other => bail!("{shape} is a {other:?}, which the codecs do not know"),
        })
    };
    Ok(match of_model["type"].as_str() {
        Some("list") => {
            let item = of_model["member"]["shape"].as_str().context("a list without items")?;
            format!("Vec<{}>", inner(item)?)
        }
        _ => format!("Option<{}>", inner(shape)?),
    })
}

/// The names of a member on the wire. EC2's requests begin every name with a capital, its responses do not.
fn names(member: &str, of_model: &Value, ec2: bool, usage: &Use) -> String {
    let response = of_model["locationName"].as_str().unwrap_or(member);
    if !ec2 {
        return format!("{response:?}");
    }
    let request = match of_model["queryName"].as_str() {
        Some(name) => name.to_owned(),
        None => response[..1].to_uppercase() + &response[1..],
    };
    match (usage.request, usage.response) {
        (true, true) if request != response => format!("{request:?} | {response:?}"),
        (true, _) => format!("{request:?}"),
        (false, _) => format!("{response:?}"),
    }
}

/// `VCpuInfo` is `vcpu_info`, `SizeInMiB` is `size_in_mib`, `ARN` is `arn`.
fn field(member: &str) -> String {
    let member = member.replace("MiB", "Mib").replace("VCpu", "Vcpu").replace("AWS", "Aws");
    let characters: Vec<char> = member.chars().collect();
    let mut field = String::new();
    for (index, &character) in characters.iter().enumerate() {
        let after_small = index > 0 && !characters[index - 1].is_uppercase();
        let before_small = characters.get(index + 1).is_some_and(|next| next.is_lowercase());
        if character.is_uppercase() && index > 0 && (after_small || before_small) {
            field.push('_');
        }
        field.extend(character.to_lowercase());
    }
    if field == "type" { "r#type".to_owned() } else { field }
}

fn service_constant(metadata: &Value) -> Result<String> {
    let text = |key: &str| metadata[key].as_str();
    let prefix = text("endpointPrefix").context("no endpointPrefix")?;
    let namespace = text("xmlNamespace").unwrap_or_default();
    let protocol = match text("protocol") {
        Some("ec2") => format!("Protocol::Ec2 {{ namespace: {namespace:?} }}"),
        Some("query") => format!("Protocol::Query {{ namespace: {namespace:?} }}"),
        Some("json") => format!(
            "Protocol::Json {{ version: {:?}, target: {:?} }}",
            text("jsonVersion").unwrap_or("1.0"),
            text("targetPrefix").context("no targetPrefix")?
        ),
        Some("rest-json") => "Protocol::RestJson".to_owned(),
        other => bail!("protocol {other:?}"),
    };
    Ok(format!(
        "pub const SERVICE: Service = Service {{\n    id: {:?},\n    endpoint_prefix: {prefix:?},\n    signing_name: {:?},\n    version: {:?},\n    protocol: {protocol},\n}};\n",
        text("serviceId").context("no serviceId")?,
        text("signingName").unwrap_or(prefix),
        text("apiVersion").context("no apiVersion")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_readable_names() {
        let cases = [
            ("InstanceId", "instance_id"),
            ("VCpuInfo", "vcpu_info"),
            ("DefaultVCpus", "default_vcpus"),
            ("SizeInMiB", "size_in_mib"),
            ("SizeInGB", "size_in_gb"),
            ("ARN", "arn"),
            ("HttpProtocolIpv6", "http_protocol_ipv6"),
            ("QueueOwnerAWSAccountId", "queue_owner_aws_account_id"),
            ("Type", "r#type"),
            ("serviceIpv4Cidr", "service_ipv4_cidr"),
        ];
        for (member, expect) in cases {
            assert_eq!(field(member), expect);
        }
    }
}
