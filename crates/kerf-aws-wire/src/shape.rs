//! From types to the tree and back.

use jiff::Timestamp;

use crate::error::DecodeError;
use crate::node::Node;

/// Requests and responses may have different names for the same member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Request,
    Response,
}

/// What can be on the wire: the generated structures, and the scalars and lists that they are made of.
pub trait Shape: Sized {
    /// Whether `<count/>` is the same as no count at all.
    #[doc(hidden)]
    const ABSENT_WHEN_EMPTY: bool = false;

    /// Nothing where there is nothing to say: an absent member, an empty list.
    #[doc(hidden)]
    fn to_node(&self, side: Side) -> Option<Node>;

    #[doc(hidden)]
    fn from_node(node: Node, side: Side) -> Result<Self, DecodeError>;
}

impl<T: Shape> Shape for Option<T> {
    fn to_node(&self, side: Side) -> Option<Node> {
        self.as_ref().and_then(|value| value.to_node(side))
    }

    fn from_node(node: Node, side: Side) -> Result<Self, DecodeError> {
        match node {
            Node::Null => Ok(None),
            Node::Text(text) if T::ABSENT_WHEN_EMPTY && text.trim().is_empty() => Ok(None),
            node => T::from_node(node, side).map(Some),
        }
    }
}

impl<T: Shape> Shape for Vec<T> {
    fn to_node(&self, side: Side) -> Option<Node> {
        let items: Vec<_> = self.iter().filter_map(|item| item.to_node(side)).collect();
        (!items.is_empty()).then_some(Node::List(items))
    }

    fn from_node(node: Node, side: Side) -> Result<Self, DecodeError> {
        match node {
            Node::Null => Ok(Self::new()),
            // `<tagSet/>`
            Node::Text(text) if text.trim().is_empty() => Ok(Self::new()),
            Node::List(items) => items.into_iter().map(|item| T::from_node(item, side)).collect(),
            // `<tagSet><item>…</item><item>…</item></tagSet>`
            Node::Structure(items) => {
                items.into_iter().map(|(_, item)| T::from_node(item, side)).collect()
            }
            other => Err(DecodeError::unexpected("a list", other)),
        }
    }
}

impl Shape for String {
    fn to_node(&self, _: Side) -> Option<Node> {
        Some(Node::Text(self.clone()))
    }

    fn from_node(node: Node, _: Side) -> Result<Self, DecodeError> {
        match node {
            Node::Text(text) => Ok(text),
            other => Err(DecodeError::unexpected("a text", other)),
        }
    }
}

impl Shape for bool {
    const ABSENT_WHEN_EMPTY: bool = true;

    fn to_node(&self, _: Side) -> Option<Node> {
        Some(Node::Bool(*self))
    }

    fn from_node(node: Node, _: Side) -> Result<Self, DecodeError> {
        match node {
            Node::Bool(value) => Ok(value),
            Node::Text(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Node::Text(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            other => Err(DecodeError::unexpected("true or false", other)),
        }
    }
}

impl Shape for i64 {
    const ABSENT_WHEN_EMPTY: bool = true;

    fn to_node(&self, _: Side) -> Option<Node> {
        Some(Node::Integer(*self))
    }

    fn from_node(node: Node, _: Side) -> Result<Self, DecodeError> {
        match &node {
            Node::Integer(value) => Some(*value),
            Node::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
        .ok_or_else(|| DecodeError::unexpected("a whole number", node))
    }
}

impl Shape for i32 {
    const ABSENT_WHEN_EMPTY: bool = true;

    fn to_node(&self, side: Side) -> Option<Node> {
        i64::from(*self).to_node(side)
    }

    fn from_node(node: Node, side: Side) -> Result<Self, DecodeError> {
        let value = i64::from_node(node, side)?;
        value.try_into().map_err(|_| DecodeError::unexpected("a number of 32 bits", value))
    }
}

impl Shape for f64 {
    const ABSENT_WHEN_EMPTY: bool = true;

    fn to_node(&self, _: Side) -> Option<Node> {
        Some(Node::Float(*self))
    }

    fn from_node(node: Node, _: Side) -> Result<Self, DecodeError> {
        match &node {
            Node::Float(value) => Some(*value),
            Node::Integer(value) => Some(*value as f64),
            Node::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
        .ok_or_else(|| DecodeError::unexpected("a number", node))
    }
}

/// XML and forms write `2026-11-16T19:00:00Z`, JSON the seconds since 1970.
impl Shape for Timestamp {
    const ABSENT_WHEN_EMPTY: bool = true;

    fn to_node(&self, _: Side) -> Option<Node> {
        Some(Node::Time(*self))
    }

    fn from_node(node: Node, _: Side) -> Result<Self, DecodeError> {
        match &node {
            Node::Text(text) => text.trim().parse().ok(),
            Node::Integer(seconds) => Self::from_second(*seconds).ok(),
            // Microseconds are what a double still holds of a time of this century.
            #[expect(
                clippy::cast_possible_truncation,
                reason = "`as` saturates, and jiff refuses what is out of range"
            )]
            Node::Float(seconds) => Self::from_microsecond((seconds * 1e6).round() as i64).ok(),
            _ => None,
        }
        .ok_or_else(|| DecodeError::unexpected("a time", node))
    }
}

/// A structure, from its members and their names. One name serves both sides; `"Key" | "key"` are that of requests and that of
/// responses.
macro_rules! shape {
    ($name:ident {$($field:ident: $type:ty = $request:literal $(| $response:literal)?,)*}) => {
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name {
            $(pub $field: $type,)*
        }

        impl $crate::shape::Shape for $name {
            fn to_node(&self, side: $crate::shape::Side) -> Option<$crate::node::Node> {
                let mut members = ::std::vec::Vec::new();
                $(if let Some(node) = $crate::shape::Shape::to_node(&self.$field, side) {
                    members.push(($crate::shape::name!(side, $request $(, $response)?).into(), node));
                })*
                let _ = (side, &mut members);
                Some($crate::node::Node::Structure(members))
            }

            fn from_node(
                node: $crate::node::Node,
                side: $crate::shape::Side,
            ) -> Result<Self, $crate::error::DecodeError> {
                let mut shape = Self::default();
                for (name, node) in $crate::shape::members(node)? {
                    $(if name == $crate::shape::name!(side, $request $(, $response)?) {
                        shape.$field = $crate::shape::member(node, side, $request)?;
                        continue;
                    })*
                    let _ = (name, node, side, &mut shape);
                }
                Ok(shape)
            }
        }
    };
}

macro_rules! name {
    ($side:ident, $name:literal) => {
        $name
    };
    ($side:ident, $request:literal, $response:literal) => {
        match $side {
            $crate::shape::Side::Request => $request,
            $crate::shape::Side::Response => $response,
        }
    };
}

pub(crate) use {name, shape};

/// The members of a structure. `<placement/>` is one without any.
pub(crate) fn members(
    node: Node,
) -> Result<Vec<(std::borrow::Cow<'static, str>, Node)>, DecodeError> {
    match node {
        Node::Structure(members) => Ok(members),
        Node::Null => Ok(Vec::new()),
        Node::Text(text) if text.trim().is_empty() => Ok(Vec::new()),
        other => Err(DecodeError::unexpected("a structure", other)),
    }
}

/// A member, with its name in what is said when it cannot be read.
pub(crate) fn member<T: Shape>(
    node: Node,
    side: Side,
    name: &'static str,
) -> Result<T, DecodeError> {
    T::from_node(node, side).map_err(|error| error.inside(name))
}
