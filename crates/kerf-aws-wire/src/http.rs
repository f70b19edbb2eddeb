//! Calls as HTTP messages, without saying how those travel.

use crate::error::{DecodeError, ErrorResponse, Problem};
use crate::node::Node;
use crate::operation::{Operation, Protocol, Route, Service};
use crate::query::Lists;
use crate::shape::{Shape, Side};
use crate::text::{decode, encode_segment};
use crate::{json, query, xml};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
}

/// A request: what the two headers say that matter, and the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireRequest {
    pub method: Method,
    /// Percent-encoded.
    pub path: String,
    pub content_type: Option<&'static str>,
    /// `x-amz-target`
    pub target: Option<String>,
    pub body: String,
}

/// A response, with the headers that belong to its protocol, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireResponse {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

impl WireRequest {
    pub fn encode<O: Operation>(operation: &O) -> Self {
        let request = operation.to_node(Side::Request).unwrap_or(Node::Null);
        let form = |lists| Self {
            method: Method::Post,
            path: "/".to_owned(),
            content_type: Some(FORM),
            target: None,
            body: query::write(O::NAME, O::SERVICE.version, &request, lists),
        };
        match (O::SERVICE.protocol, O::ROUTE) {
            (Protocol::Ec2 { .. }, _) => form(Lists::Flat),
            (Protocol::Query { .. }, _) => form(Lists::Member),
            (Protocol::Json { version, target }, _) => Self {
                method: Method::Post,
                path: "/".to_owned(),
                content_type: Some(json_type(version)),
                target: Some(format!("{target}.{}", O::NAME)),
                body: json::write(&request),
            },
            (Protocol::RestJson, Route::Root) => Self {
                method: Method::Post,
                path: "/".to_owned(),
                content_type: Some(JSON),
                target: None,
                body: json::write(&request),
            },
            (Protocol::RestJson, Route::Get(template)) => Self {
                method: Method::Get,
                path: fill(template, &request),
                content_type: None,
                target: None,
                body: String::new(),
            },
        }
    }

    /// For a server, which knows by [`crate::find_operation`] what it has got.
    pub fn decode<O: Operation>(&self) -> Result<O, DecodeError> {
        let node = match (O::SERVICE.protocol, O::ROUTE) {
            (Protocol::Ec2 { .. } | Protocol::Query { .. }, _) => query::read(&self.body)?.request,
            (Protocol::RestJson, Route::Get(template)) => extract(template, &self.path)?,
            (Protocol::Json { .. } | Protocol::RestJson, _) => json::read(&self.body)?,
        };
        O::from_node(node, Side::Request)
    }
}

const JSON: &str = "application/json";
const XML: &str = "text/xml;charset=UTF-8";

fn json_type(version: &str) -> &'static str {
    if version == "1.0" { "application/x-amz-json-1.0" } else { "application/x-amz-json-1.1" }
}

/// What `{name}` in a path stands for.
fn placeholder(segment: &'static str) -> Option<&'static str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn fill(template: &'static str, request: &Node) -> String {
    let Node::Structure(members) = request else { return template.to_owned() };
    let value = |name| members.iter().find(|(member, _)| member == name).map(|(_, node)| node);
    let segments = template.split('/').map(|segment| match placeholder(segment) {
        Some(name) => {
            value(name).map(|node| encode_segment(&query::text_of(node))).unwrap_or_default()
        }
        None => segment.to_owned(),
    });
    segments.collect::<Vec<_>>().join("/")
}

pub(crate) fn fits(template: &'static str, path: &str) -> bool {
    extract(template, path).is_ok()
}

fn extract(template: &'static str, path: &str) -> Result<Node, DecodeError> {
    let other = || DecodeError::new(Problem::Path(path.to_owned()));
    let (expected, found): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    if expected.len() != found.len() {
        return Err(other());
    }
    let mut members = Vec::new();
    for (expected, found) in expected.into_iter().zip(found) {
        match placeholder(expected) {
            Some(name) if !found.is_empty() => {
                members.push((name.into(), Node::Text(decode(found)?)));
            }
            None if expected == found => {}
            _ => return Err(other()),
        }
    }
    Ok(Node::Structure(members))
}

impl WireResponse {
    /// For a server: the response to a call that went well.
    pub fn encode<O: Operation>(response: &O::Response, request_id: &str) -> Self {
        let node = response.to_node(Side::Response).unwrap_or(Node::Structure(Vec::new()));
        let id = Node::Text(request_id.to_owned());
        let mut body = String::new();
        let content_type = match O::SERVICE.protocol {
            Protocol::Ec2 { namespace } => {
                let mut members = vec![("requestId".into(), id)];
                if let Node::Structure(own) = node {
                    members.extend(own);
                }
                let root = format!("{}Response xmlns=\"{namespace}\"", O::NAME);
                xml::write(&root, &Node::Structure(members), "item", &mut body);
                XML
            }
            Protocol::Query { namespace } => {
                let metadata = Node::Structure(vec![("RequestId".into(), id)]);
                let parts = vec![
                    (format!("{}Result", O::NAME).into(), node),
                    ("ResponseMetadata".into(), metadata),
                ];
                let root = format!("{}Response xmlns=\"{namespace}\"", O::NAME);
                xml::write(&root, &Node::Structure(parts), "member", &mut body);
                XML
            }
            Protocol::Json { version, .. } => {
                body = json::write(&node);
                json_type(version)
            }
            Protocol::RestJson => {
                body = json::write(&node);
                JSON
            }
        };
        Self { status: 200, headers: headers(content_type, request_id), body }
    }

    /// For a client: the response to a call that went well.
    pub fn decode<O: Operation>(body: &str) -> Result<O::Response, DecodeError> {
        let node = match O::SERVICE.protocol {
            Protocol::Ec2 { .. } => xml::read(body)?.1,
            Protocol::Query { .. } => {
                let result = format!("{}Result", O::NAME);
                xml::read(body)?.1.take(&result).unwrap_or(Node::Structure(Vec::new()))
            }
            Protocol::Json { .. } | Protocol::RestJson => json::read(body)?,
        };
        O::Response::from_node(node, Side::Response)
    }

    /// For a server: a refusal.
    pub fn encode_error(service: &Service, status: u16, error: &ErrorResponse) -> Self {
        let code = error.code.clone().unwrap_or_default();
        let id = error.request_id.clone().unwrap_or_default();
        let text = |text: &str| Node::Text(text.to_owned());
        let structure = |members: Vec<(&'static str, Node)>| {
            Node::Structure(members.into_iter().map(|(name, node)| (name.into(), node)).collect())
        };
        let mut body = String::new();
        let mut headers = match service.protocol {
            Protocol::Ec2 { .. } => {
                let error =
                    structure(vec![("Code", text(&code)), ("Message", text(&error.message))]);
                let errors = structure(vec![("Error", error)]);
                let response = structure(vec![("Errors", errors), ("RequestID", text(&id))]);
                xml::write("Response", &response, "item", &mut body);
                headers(XML, &id)
            }
            Protocol::Query { namespace } => {
                let blame = if status < 500 { "Sender" } else { "Receiver" };
                let error = structure(vec![
                    ("Type", text(blame)),
                    ("Code", text(&code)),
                    ("Message", text(&error.message)),
                ]);
                let response = structure(vec![("Error", error), ("RequestId", text(&id))]);
                let root = format!("ErrorResponse xmlns=\"{namespace}\"");
                xml::write(&root, &response, "member", &mut body);
                headers(XML, &id)
            }
            Protocol::Json { version, .. } => {
                let members = vec![("__type", text(&code)), ("message", text(&error.message))];
                body = json::write(&structure(members));
                headers(json_type(version), &id)
            }
            Protocol::RestJson => {
                body = json::write(&structure(vec![("message", text(&error.message))]));
                let mut headers = headers(JSON, &id);
                headers.push((ERROR_TYPE, code));
                headers
            }
        };
        if let Some(code) = &error.query_code {
            headers.push((QUERY_ERROR, format!("{code};Sender")));
        }
        Self { status, headers, body }
    }

    /// For a client: a refusal. `header` looks one up by its name in lower case. What answers in another way than the service would
    /// (a proxy, say) gives an error without a code, whose message is the beginning of the body.
    pub fn decode_error<'a>(
        service: &Service,
        header: impl Fn(&str) -> Option<&'a str>,
        body: &str,
    ) -> ErrorResponse {
        let parsed = match service.protocol {
            Protocol::Ec2 { .. } => xml::read(body).ok().and_then(|(_, node)| {
                let error = node.clone().take("Errors").and_then(|errors| errors.take("Error"));
                error.map(|error| (error, node.take("RequestID")))
            }),
            Protocol::Query { .. } => xml::read(body).ok().and_then(|(_, node)| {
                node.clone().take("Error").map(|error| (error, node.take("RequestId")))
            }),
            Protocol::Json { .. } | Protocol::RestJson => {
                json::read(body).ok().map(|node| (node, None))
            }
        };
        let (error, id) = parsed.unwrap_or((Node::Null, None));
        let text = |names: &[&str]| {
            names.iter().find_map(|name| match error.clone().take(name) {
                Some(Node::Text(text)) => Some(text),
                _ => None,
            })
        };
        let id = match id {
            Some(Node::Text(id)) => Some(id),
            _ => header(REQUEST_ID).map(str::to_owned),
        };
        let code =
            header(ERROR_TYPE).map(str::to_owned).or_else(|| text(&["__type", "code", "Code"]));
        // `com.amazonaws.ssm#ParameterNotFound`, `ResourceNotFoundException:http://…`
        let bare = |code: String| {
            let code = code.split(':').next().unwrap_or_default();
            code.rsplit('#').next().unwrap_or_default().trim().to_owned()
        };
        let query_code = header(QUERY_ERROR).and_then(|value| value.split(';').next());
        ErrorResponse {
            code: code.map(bare).filter(|code| !code.is_empty()),
            query_code: query_code.map(str::to_owned),
            message: text(&["message", "Message", "errorMessage"])
                .unwrap_or_else(|| body.chars().take(200).collect::<String>().trim().to_owned()),
            request_id: id.filter(|id| !id.is_empty()),
        }
    }
}

const REQUEST_ID: &str = "x-amzn-requestid";
const ERROR_TYPE: &str = "x-amzn-errortype";
const QUERY_ERROR: &str = "x-amzn-query-error";

fn headers(content_type: &str, request_id: &str) -> Vec<(&'static str, String)> {
    vec![("content-type", content_type.to_owned()), (REQUEST_ID, request_id.to_owned())]
}
