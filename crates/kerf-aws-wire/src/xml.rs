//! Responses of EC2 and IAM.

use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::Event;

use crate::error::{DecodeError, Problem};
use crate::node::Node;
use crate::query::text_of;

/// The element at the root, with what is in it.
pub(crate) fn read(xml: &str) -> Result<(String, Node), DecodeError> {
    let mut reader = Reader::from_str(xml);
    loop {
        match reader.read_event().map_err(broken)? {
            Event::Start(start) => {
                let name = local_name(&start);
                return Ok((name, element(&mut reader, 0)?));
            }
            Event::Empty(start) => return Ok((local_name(&start), Node::Text(String::new()))),
            Event::Eof => return Err(broken("it ends without an element")),
            _ => {}
        }
    }
}

/// No response of AWS has a tenth of it, and the stack has room for it.
const DEEPEST: usize = 128;

/// What is between the start of an element, which has been read, and its end: either text or elements.
fn element(reader: &mut Reader<&[u8]>, depth: usize) -> Result<Node, DecodeError> {
    if depth > DEEPEST {
        return Err(broken("its elements are nested too deeply"));
    }
    let mut text = String::new();
    let mut members = Vec::new();
    loop {
        match reader.read_event().map_err(broken)? {
            Event::Start(start) => {
                let name = local_name(&start);
                members.push((name.into(), element(reader, depth + 1)?));
            }
            Event::Empty(start) => {
                members.push((local_name(&start).into(), Node::Text(String::new())));
            }
            Event::Text(part) => text.push_str(&part.xml10_content()),
            Event::CData(part) => text.push_str(&part.xml10_content()),
            Event::GeneralRef(reference) => match reference.resolve_char_ref().map_err(broken)? {
                Some(character) => text.push(character),
                None => text.push_str(
                    resolve_predefined_entity(&reference).ok_or_else(|| broken(&*reference))?,
                ),
            },
            Event::End(_) => break,
            Event::Eof => return Err(broken("it ends inside of an element")),
            _ => {}
        }
    }
    Ok(if members.is_empty() { Node::Text(text) } else { Node::Structure(members) })
}

fn local_name(start: &quick_xml::events::BytesStart<'_>) -> String {
    start.local_name().as_ref().to_owned()
}

fn broken(error: impl std::fmt::Display) -> DecodeError {
    DecodeError::new(Problem::Xml(error.to_string()))
}

/// Writes an element. `item` is what the elements of a list are called.
pub(crate) fn write(name: &str, node: &Node, item: &str, xml: &mut String) {
    open(name, xml);
    match node {
        Node::Structure(members) => {
            for (member, node) in members {
                write(member, node, item, xml);
            }
        }
        Node::List(items) => {
            for node in items {
                write(item, node, item, xml);
            }
        }
        scalar => xml.push_str(&escape(text_of(scalar))),
    }
    close(name, xml);
}

pub(crate) fn open(name: &str, xml: &mut String) {
    for part in ["<", name, ">"] {
        xml.push_str(part);
    }
}

pub(crate) fn close(name: &str, xml: &mut String) {
    for part in ["</", name.split(' ').next().unwrap_or(name), ">"] {
        xml.push_str(part);
    }
}
