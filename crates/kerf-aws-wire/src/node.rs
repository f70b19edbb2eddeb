//! The tree between types and text. Every protocol writes and reads this one.

use std::borrow::Cow;

use jiff::Timestamp;

/// A value on the wire. XML and form fields know only text, so whoever reads a number or a list must take it from text as well.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Null,
    Text(String),
    Bool(bool),
    Integer(i64),
    Float(f64),
    /// Only written: each protocol has its own format, and none of them says when reading that a text is a time.
    Time(Timestamp),
    List(Vec<Node>),
    /// In the order of the wire. XML may repeat a name: that is how it writes a list.
    Structure(Vec<(Cow<'static, str>, Node)>),
}

impl Node {
    /// What stands under a name, and nothing where the node has no names.
    pub(crate) fn take(self, name: &str) -> Option<Node> {
        match self {
            Self::Structure(members) => {
                members.into_iter().find(|(key, _)| key == name).map(|(_, node)| node)
            }
            _ => None,
        }
    }
}
