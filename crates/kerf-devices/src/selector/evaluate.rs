//! Evaluating a compiled expression for one device.

use std::rc::Rc;

use super::functions::call;
use super::parse::{Each, Goal, Node};
use super::value::{Text, Value, list, no_overload};
use super::{COST_LIMIT, Failure};
use crate::device::Kind;

pub(super) fn evaluate<'a>(root: &'a Node, kind: &'a Kind) -> Result<Value<'a>, Failure> {
    Evaluation { kind, locals: Vec::new(), meter: Meter(COST_LIMIT) }.node(root)
}

/// What may still be spent.
pub(super) struct Meter(u64);

impl Meter {
    pub(super) fn spend(&mut self, cost: usize) -> Result<(), Failure> {
        self.0 = self.0.saturating_sub(cost as u64);
        if self.0 == 0 { Err(Failure::TooExpensive) } else { Ok(()) }
    }

    /// Going through a text costs a tenth of its length, as in Kubernetes.
    pub(super) fn spend_on_text(&mut self, length: usize) -> Result<(), Failure> {
        self.spend(1 + length / 10)
    }
}

struct Evaluation<'a> {
    kind: &'a Kind,
    locals: Vec<Value<'a>>,
    meter: Meter,
}

impl<'a> Evaluation<'a> {
    fn node(&mut self, node: &'a Node) -> Result<Value<'a>, Failure> {
        self.meter.spend(1)?;
        Ok(match node {
            Node::Null => Value::Null,
            Node::Bool(value) => Value::Bool(*value),
            Node::Int(value) => Value::Int(*value),
            Node::Uint(value) => Value::Uint(*value),
            Node::Double(value) => Value::Double(*value),
            Node::String(value) => Value::String(Text::Borrowed(value)),
            Node::Device => Value::Device(self.kind),
            Node::Local(place) => self.locals.get(*place).cloned().unwrap_or(Value::Null),
            Node::List(items) => list(self.nodes(items)?),
            Node::Map(entries) => {
                let mut map = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    map.push((self.node(key)?, self.node(value)?));
                }
                Value::Map(Rc::new(map))
            }
            Node::Field { of, name, optional } => {
                let of = self.node(of)?;
                field(&of, name, *optional)?
            }
            Node::Has { of, name } => match self.node(of)? {
                Value::Optional(None) => Value::Bool(false),
                Value::Optional(Some(of)) => Value::Bool(of.has(name)?),
                of => Value::Bool(of.has(name)?),
            },
            Node::If(parts) => {
                let [condition, yes, no] = &**parts;
                if self.boolean(condition)? { self.node(yes)? } else { self.node(no)? }
            }
            Node::And(sides) => Value::Bool(!self.either(sides, false)?),
            Node::Or(sides) => Value::Bool(self.either(sides, true)?),
            Node::Call { function, arguments } => {
                let arguments = self.nodes(arguments)?;
                call(*function, &arguments, &mut self.meter)?
            }
            Node::Let { value, body } => {
                let value = self.node(value)?;
                self.with(value, |this| this.node(body))?
            }
            Node::Each(each) => self.each(each)?,
        })
    }

    fn nodes(&mut self, nodes: &'a [Node]) -> Result<Vec<Value<'a>>, Failure> {
        nodes.iter().map(|node| self.node(node)).collect()
    }

    fn boolean(&mut self, node: &'a Node) -> Result<bool, Failure> {
        match self.node(node)? {
            Value::Bool(answer) => Ok(answer),
            other => Err(no_overload("a logical operator", [&other])),
        }
    }

    /// Whether one of the sides is `decisive`. Then others may fail: `error && false` is false.
    fn either(&mut self, sides: &'a [Node], decisive: bool) -> Result<bool, Failure> {
        let mut verdict = Verdict::new(decisive);
        for side in sides {
            let answer = self.boolean(side);
            if verdict.is_decided_by(answer)? {
                return Ok(true);
            }
        }
        verdict.undecided()
    }

    fn each(&mut self, each: &'a Each) -> Result<Value<'a>, Failure> {
        let items = self.node(&each.range)?.items()?;
        self.meter.spend(items.len())?;
        Ok(match &each.goal {
            Goal::All(test) => Value::Bool(!self.any(items, test, false)?),
            Goal::Exists(test) => Value::Bool(self.any(items, test, true)?),
            Goal::ExistsOne(test) => {
                let mut found = 0;
                for item in items {
                    found += usize::from(self.test(test, item)?);
                }
                Value::Bool(found == 1)
            }
            Goal::Filter(test) => {
                let mut kept = Vec::new();
                for item in items {
                    if self.test(test, item.clone())? {
                        kept.push(item);
                    }
                }
                list(kept)
            }
            Goal::Map { test, value } => {
                let mut mapped = Vec::new();
                for item in items {
                    let wanted = match test {
                        Some(test) => self.test(test, item.clone())?,
                        None => true,
                    };
                    if wanted {
                        mapped.push(self.with(item, |this| this.node(value))?);
                    }
                }
                list(mapped)
            }
        })
    }

    fn any(
        &mut self,
        items: Vec<Value<'a>>,
        test: &'a Node,
        decisive: bool,
    ) -> Result<bool, Failure> {
        let mut verdict = Verdict::new(decisive);
        for item in items {
            let answer = self.test(test, item);
            if verdict.is_decided_by(answer)? {
                return Ok(true);
            }
        }
        verdict.undecided()
    }

    fn test(&mut self, test: &'a Node, item: Value<'a>) -> Result<bool, Failure> {
        self.with(item, |this| this.boolean(test))
    }

    /// Evaluates something while a value is bound.
    fn with<T>(
        &mut self,
        value: Value<'a>,
        evaluate: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.locals.push(value);
        let result = evaluate(self);
        self.locals.pop();
        result
    }
}

/// What comes of several answers, of which one decides and the others may fail.
struct Verdict {
    decisive: bool,
    failure: Option<Failure>,
}

impl Verdict {
    fn new(decisive: bool) -> Self {
        Self { decisive, failure: None }
    }

    fn is_decided_by(&mut self, answer: Result<bool, Failure>) -> Result<bool, Failure> {
        match answer {
            Ok(answer) => Ok(answer == self.decisive),
            Err(Failure::TooExpensive) => Err(Failure::TooExpensive),
            Err(failure) => {
                self.failure.get_or_insert(failure);
                Ok(false)
            }
        }
    }

    fn undecided(self) -> Result<bool, Failure> {
        self.failure.map_or(Ok(false), Err)
    }
}

/// A field of a map. Of an optional, and with `?`, it is an optional itself.
fn field<'a>(of: &Value<'a>, name: &str, optional: bool) -> Result<Value<'a>, Failure> {
    let of = match of {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(of)) => of,
        of if optional => of,
        of => return of.field(name),
    };
    Ok(Value::Optional(if of.has(name)? { Some(Rc::new(of.field(name)?)) } else { None }))
}
