//! Requests and answers of the AWS calls that Kerf makes: the types, and how they look on the wire. No I/O.
//!
//! `shapes.txt` says which calls and which members; `cargo xtask generate` makes [`ec2`], [`iam`] and the other modules of it and of
//! AWS's own service models. A generated type is a list of its members with their names on the wire, and nothing more. What a
//! protocol does with them is written once, for both directions and both sides: a client encodes requests and decodes responses, a
//! fake of AWS does the reverse.

mod error;
mod generated;
mod http;
mod json;
mod node;
mod operation;
mod query;
mod shape;
mod text;
mod xml;

pub use error::{DecodeError, ErrorResponse, Problem};
pub use generated::{arc_zonal_shift, ec2, eks, iam, pricing, sqs, ssm};
pub use http::{Method, WireRequest, WireResponse};
pub use operation::{Operation, Protocol, Route, Service, all_operations, find_operation};
pub use shape::Shape;
