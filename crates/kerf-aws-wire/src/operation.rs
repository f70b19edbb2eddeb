//! What a call is: its service, its name, its two shapes.

use crate::error::DecodeError;
use crate::generated;
use crate::http::{Method, WireRequest};
use crate::query;
use crate::shape::Shape;

/// A request, which knows its call and its response.
pub trait Operation: Shape {
    const SERVICE: &'static Service;
    const NAME: &'static str;
    const ROUTE: Route;
    type Response: Shape + Default;

    /// Whether AWS does it once, even if it is asked twice. A call that makes something needs a token for that.
    fn is_repeatable(&self) -> bool {
        true
    }
}

/// A service of AWS as its clients have to know it.
#[derive(Debug, PartialEq, Eq)]
pub struct Service {
    /// What AWS calls it, as in `AWS_ENDPOINT_URL_<ID>`: `EC2`, `ARC Zonal Shift`.
    pub id: &'static str,
    /// The first part of its host name.
    pub endpoint_prefix: &'static str,
    /// What a signature is made out to.
    pub signing_name: &'static str,
    pub version: &'static str,
    pub protocol: Protocol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Forms in, XML out, with EC2's own habits.
    Ec2 { namespace: &'static str },
    /// Forms in, XML out.
    Query { namespace: &'static str },
    /// JSON in and out; a header names the call.
    Json { version: &'static str, target: &'static str },
    /// JSON in and out; method and path name the call.
    RestJson,
}

/// Where a call is sent to. Only REST says something by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Root,
    /// The path of a GET, with members of the request in braces: `/clusters/{name}`
    Get(&'static str),
}

/// One row per call, for whoever gets a request and has to know which it is.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) service: &'static Service,
    pub(crate) name: &'static str,
    pub(crate) route: Route,
}

/// Every call, by its service and its name. IAM calls the right to it `<signing name>:<name>`.
pub fn all_operations() -> impl Iterator<Item = (&'static Service, &'static str)> {
    let calls = generated::SERVICES.iter().flat_map(|calls| calls.iter());
    calls.map(|call| (call.service, call.name))
}

/// The call that a request is of. `None` when it is none of ours.
pub fn find_operation(
    request: &WireRequest,
) -> Result<Option<(&'static Service, &'static str)>, DecodeError> {
    let mut calls = generated::SERVICES.iter().flat_map(|calls| calls.iter());
    let found = if request.method == Method::Get {
        calls.find(|call| match call.route {
            Route::Get(template) => crate::http::fits(template, &request.path),
            Route::Root => false,
        })
    } else if let Some(target) = &request.target {
        calls.find(|call| match call.service.protocol {
            Protocol::Json { target: prefix, .. } => {
                target.strip_prefix(prefix).and_then(|name| name.strip_prefix('.'))
                    == Some(call.name)
            }
            _ => false,
        })
    } else {
        let form = query::read(&request.body)?;
        calls.find(|call| call.service.version == form.version && call.name == form.action)
    };
    Ok(found.map(|call| (call.service, call.name)))
}

/// The calls of a service, each with its shapes: `Name["/path"](token): Request -> Response`.
macro_rules! operations {
    ($($name:ident $([$path:literal])? $(($token:ident))?: $request:ident -> $response:ident,)*) => {
        pub(crate) const CALLS: &[$crate::operation::Call] = &[$($crate::operation::Call {
            service: &SERVICE,
            name: stringify!($name),
            route: $crate::operation::route!($($path)?),
        },)*];

        $(impl $crate::operation::Operation for $request {
            const SERVICE: &'static $crate::operation::Service = &SERVICE;
            const NAME: &'static str = stringify!($name);
            const ROUTE: $crate::operation::Route = $crate::operation::route!($($path)?);
            type Response = $response;

            $(fn is_repeatable(&self) -> bool {
                self.$token.is_some()
            })?
        })*
    };
}

macro_rules! route {
    () => {
        $crate::operation::Route::Root
    };
    ($path:literal) => {
        $crate::operation::Route::Get($path)
    };
}

pub(crate) use {operations, route};
