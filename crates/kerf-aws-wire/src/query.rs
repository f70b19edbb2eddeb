//! Requests as form fields: `Filter.1.Value.1=running`. EC2 and IAM differ in how they number a list.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use crate::error::{DecodeError, Problem};
use crate::node::Node;
use crate::text::{decode_form, encode_form};

/// How a list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    /// `Tag.1`: EC2
    Flat,
    /// `Tags.member.1`: IAM
    Member,
}

/// The fields of a request, after those that name the call.
pub(crate) fn write(action: &str, version: &str, request: &Node, lists: Lists) -> String {
    let mut form = String::new();
    field("Action", action, &mut form);
    field("Version", version, &mut form);
    append("", request, lists, &mut form);
    form
}

/// The call that a form asks for, with the version of its service, and its fields as a tree.
pub(crate) fn read(form: &str) -> Result<Form, DecodeError> {
    let mut root = Branch::default();
    for pair in form.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode_form(name)?, decode_form(value)?);
        let mut branch = &mut root;
        for part in name.split('.') {
            branch = branch.children.entry(part.to_owned()).or_default();
        }
        branch.value = Some(value);
    }
    let mut take = |name: &str| {
        let value = root.children.remove(name).and_then(|branch| branch.value);
        value.ok_or_else(|| DecodeError::new(Problem::Form(format!("without {name}"))))
    };
    Ok(Form { action: take("Action")?, version: take("Version")?, request: root.into_node() })
}

pub(crate) struct Form {
    pub(crate) action: String,
    pub(crate) version: String,
    pub(crate) request: Node,
}

fn append(name: &str, node: &Node, lists: Lists, form: &mut String) {
    match node {
        Node::Null => {}
        Node::Structure(members) => {
            for (member, node) in members {
                append(&under(name, member), node, lists, form);
            }
        }
        Node::List(items) => {
            let name = match lists {
                Lists::Flat => Cow::Borrowed(name),
                Lists::Member => Cow::Owned(under(name, "member")),
            };
            for (index, item) in items.iter().enumerate() {
                append(&under(&name, &(index + 1).to_string()), item, lists, form);
            }
        }
        scalar => field(name, &text_of(scalar), form),
    }
}

fn under(name: &str, member: &str) -> String {
    if name.is_empty() { member.to_owned() } else { format!("{name}.{member}") }
}

fn field(name: &str, value: &str, form: &mut String) {
    if !form.is_empty() {
        form.push('&');
    }
    encode_form(name, form);
    form.push('=');
    encode_form(value, form);
}

/// A scalar where there is nothing but text: in forms and in XML.
pub(crate) fn text_of(node: &Node) -> Cow<'_, str> {
    match node {
        Node::Text(text) => Cow::Borrowed(text),
        Node::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
        Node::Integer(value) => Cow::Owned(value.to_string()),
        Node::Float(value) => Cow::Owned(value.to_string()),
        // To the second, or to the millisecond where there are any: what EC2 itself writes.
        Node::Time(time) => {
            let time = time.to_zoned(TimeZone::UTC);
            let format = if time.subsec_nanosecond() == 0 { "%FT%TZ" } else { "%FT%T.%3fZ" };
            Cow::Owned(time.strftime(format).to_string())
        }
        Node::Null | Node::List(_) | Node::Structure(_) => Cow::Borrowed(""),
    }
}

#[derive(Default)]
struct Branch {
    value: Option<String>,
    children: BTreeMap<String, Branch>,
}

impl Branch {
    fn into_node(mut self) -> Node {
        if self.children.is_empty() {
            return self.value.map_or(Node::Structure(Vec::new()), Node::Text);
        }
        if self.children.len() == 1
            && let Some(list) = self.children.remove("member")
        {
            return list.into_node();
        }
        let numbers: Option<Vec<u64>> = self.children.keys().map(|key| key.parse().ok()).collect();
        let Some(numbers) = numbers else {
            let members = self.children.into_iter();
            return Node::Structure(
                members.map(|(key, child)| (key.into(), child.into_node())).collect(),
            );
        };
        // By number: as text `10` stands before `2`.
        let mut items: Vec<_> = numbers.into_iter().zip(self.children.into_values()).collect();
        items.sort_by_key(|(number, _)| *number);
        Node::List(items.into_iter().map(|(_, child)| child.into_node()).collect())
    }
}
