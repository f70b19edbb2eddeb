//! From an expression to what is evaluated. Names are resolved and macros are taken apart on the way.

use std::sync::Arc;

use super::functions::{FUNCTIONS, Function};
use super::tokens::{Token, tokens};
use super::{DEPTH_LIMIT, Invalid, LENGTH_LIMIT};

/// An expression in which every name is resolved.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Device,
    /// The variable that was bound this many bindings after the outermost.
    Local(usize),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Field {
        of: Box<Node>,
        name: Arc<str>,
        optional: bool,
    },
    Has {
        of: Box<Node>,
        name: Arc<str>,
    },
    If(Box<[Node; 3]>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Call {
        function: Function,
        arguments: Vec<Node>,
    },
    /// `cel.bind`
    Let {
        value: Box<Node>,
        body: Box<Node>,
    },
    Each(Box<Each>),
}

/// A macro that goes through a list or the keys of a map. The item is bound while `test` and `value` are evaluated.
#[derive(Clone, Debug)]
pub(super) struct Each {
    pub(super) range: Node,
    pub(super) goal: Goal,
}

#[derive(Clone, Debug)]
pub(super) enum Goal {
    All(Node),
    Exists(Node),
    ExistsOne(Node),
    Filter(Node),
    Map { test: Option<Node>, value: Node },
}

pub(super) fn parse(source: &str) -> Result<Node, Invalid> {
    if source.len() > LENGTH_LIMIT {
        return Err(Invalid::TooLong { length: source.len() });
    }
    let mut parser = Parser { tokens: tokens(source)?, next: 0, locals: Vec::new(), nested: 0 };
    let tree = parser.expression()?;
    match parser.peek() {
        None => Ok(tree.node),
        Some(token) => Err(unexpected(Some(token))),
    }
}

/// A part of the tree and how deep it goes: evaluating calls itself as often.
struct Tree {
    node: Node,
    depth: usize,
}

impl Tree {
    fn leaf(node: Node) -> Self {
        Self { node, depth: 1 }
    }

    fn above(node: Node, deepest: usize) -> Result<Self, Invalid> {
        if deepest >= DEPTH_LIMIT {
            return Err(Invalid::TooDeep);
        }
        Ok(Self { node, depth: deepest + 1 })
    }
}

fn deepest(trees: &[Tree]) -> usize {
    trees.iter().map(|tree| tree.depth).max().unwrap_or(0)
}

fn nodes(trees: Vec<Tree>) -> Vec<Node> {
    trees.into_iter().map(|tree| tree.node).collect()
}

fn unexpected(token: Option<&Token>) -> Invalid {
    let message = match token {
        None => "it ends too early".to_owned(),
        Some(Token::Name(name)) => format!("{name} is not expected"),
        Some(Token::Sign(sign)) => format!("{sign} is not expected"),
        Some(_) => "a literal is not expected".to_owned(),
    };
    Invalid::Syntax { message }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    /// The variables that are bound where the next token stands.
    locals: Vec<String>,
    nested: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn accept(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), Invalid> {
        if self.accept(sign) { Ok(()) } else { Err(unexpected(self.peek())) }
    }

    fn name(&mut self) -> Result<String, Invalid> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.next += 1;
                Ok(name)
            }
            other => Err(unexpected(other)),
        }
    }

    fn expression(&mut self) -> Result<Tree, Invalid> {
        self.nested += 1;
        if self.nested > DEPTH_LIMIT {
            return Err(Invalid::TooDeep);
        }
        let condition = self.alternatives()?;
        let tree = if self.accept("?") {
            let yes = self.alternatives()?;
            self.expect(":")?;
            let no = self.expression()?;
            let deepest = condition.depth.max(yes.depth).max(no.depth);
            Tree::above(Node::If(Box::new([condition.node, yes.node, no.node])), deepest)?
        } else {
            condition
        };
        self.nested -= 1;
        Ok(tree)
    }

    fn alternatives(&mut self) -> Result<Tree, Invalid> {
        self.chain("||", Node::Or, |parser| {
            parser.chain("&&", Node::And, |parser| parser.operation(0))
        })
    }

    /// Sides of one logical operator, as one node: their order does not matter for the result.
    fn chain(
        &mut self,
        sign: &str,
        node: fn(Vec<Node>) -> Node,
        side: impl Fn(&mut Self) -> Result<Tree, Invalid>,
    ) -> Result<Tree, Invalid> {
        let first = side(self)?;
        let mut sides = vec![first];
        while self.accept(sign) {
            sides.push(side(self)?);
        }
        match sides.pop() {
            Some(only) if sides.is_empty() => Ok(only),
            last => {
                sides.extend(last);
                let deepest = deepest(&sides);
                Tree::above(node(nodes(sides)), deepest)
            }
        }
    }

    /// Comparisons, then sums, then products: the later ones bind more tightly.
    fn operation(&mut self, level: usize) -> Result<Tree, Invalid> {
        use Function as F;
        let levels: [&[(&str, F)]; 3] = [
            &[
                ("==", F::Equal),
                ("!=", F::Unequal),
                ("<=", F::AtMost),
                (">=", F::AtLeast),
                ("<", F::Less),
                (">", F::Greater),
            ],
            &[("+", F::Plus), ("-", F::Minus)],
            &[("*", F::Times), ("/", F::Divide), ("%", F::Modulo)],
        ];
        let Some(operators) = levels.get(level) else { return self.unary() };
        let mut left = self.operation(level + 1)?;
        loop {
            let found = operators.iter().find(|(sign, _)| self.accept(sign));
            let is_in = level == 0 && found.is_none() && self.accept_name("in");
            let function = match found {
                Some((_, function)) => *function,
                None if is_in => F::In,
                None => return Ok(left),
            };
            let right = self.operation(level + 1)?;
            left = Self::call(function, vec![left, right])?;
        }
    }

    fn accept_name(&mut self, wanted: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(name)) if name == wanted);
        self.next += usize::from(found);
        found
    }

    fn call(function: Function, arguments: Vec<Tree>) -> Result<Tree, Invalid> {
        let deepest = deepest(&arguments);
        Tree::above(Node::Call { function, arguments: nodes(arguments) }, deepest)
    }

    fn unary(&mut self) -> Result<Tree, Invalid> {
        let mut signs = Vec::new();
        loop {
            if self.accept("!") {
                signs.push(Function::Not);
            } else if self.accept("-") {
                // The least integer has no positive counterpart, so the sign belongs to the literal.
                if let Some(Token::Int(value)) = self.peek() {
                    let value = 0_i64.checked_sub_unsigned(*value);
                    let value = value.ok_or_else(|| unexpected(self.peek()))?;
                    self.next += 1;
                    break self
                        .members(Tree::leaf(Node::Int(value)))
                        .and_then(|tree| Self::signed(tree, signs));
                }
                signs.push(Function::Negate);
            } else {
                let tree = self.primary()?;
                break self.members(tree).and_then(|tree| Self::signed(tree, signs));
            }
        }
    }

    fn signed(mut tree: Tree, signs: Vec<Function>) -> Result<Tree, Invalid> {
        for sign in signs.into_iter().rev() {
            tree = Self::call(sign, vec![tree])?;
        }
        Ok(tree)
    }

    fn primary(&mut self) -> Result<Tree, Invalid> {
        let token = self.peek().cloned();
        self.next += 1;
        Ok(Tree::leaf(match token {
            Some(Token::Int(value)) => {
                Node::Int(i64::try_from(value).map_err(|_| unexpected(token.as_ref()))?)
            }
            Some(Token::Uint(value)) => Node::Uint(value),
            Some(Token::Double(value)) => Node::Double(value),
            Some(Token::String(value)) => Node::String(value),
            Some(Token::Sign("(")) => {
                let tree = self.expression()?;
                self.expect(")")?;
                return Ok(tree);
            }
            Some(Token::Sign("[")) => {
                let items = self.list("]")?;
                let deepest = deepest(&items);
                return Tree::above(Node::List(nodes(items)), deepest);
            }
            Some(Token::Sign("{")) => return self.map(),
            Some(Token::Name(name)) => return self.named(&name),
            other => return Err(unexpected(other.as_ref())),
        }))
    }

    /// Expressions between commas, up to a closing sign. A comma before it is allowed.
    fn list(&mut self, end: &str) -> Result<Vec<Tree>, Invalid> {
        let mut items = Vec::new();
        while !self.accept(end) {
            items.push(self.expression()?);
            if !self.accept(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(items)
    }

    fn map(&mut self) -> Result<Tree, Invalid> {
        let mut entries = Vec::new();
        let mut deepest = 0;
        while !self.accept("}") {
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            deepest = deepest.max(key.depth).max(value.depth);
            entries.push((key.node, value.node));
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Tree::above(Node::Map(entries), deepest)
    }

    /// A variable, a function, or the first half of the name of a function.
    fn named(&mut self, name: &str) -> Result<Tree, Invalid> {
        let local = self.locals.iter().rposition(|local| local == name);
        if local.is_none() && self.accept("(") {
            if name == "has" {
                return self.has();
            }
            let arguments = self.list(")")?;
            return Self::function(name, false, arguments);
        }
        let is_namespace = local.is_none() && ["cel", "optional", "sets"].contains(&name);
        if is_namespace && self.accept(".") {
            let name = format!("{name}.{}", self.name()?);
            self.expect("(")?;
            if name == "cel.bind" {
                return self.bind();
            }
            let arguments = self.list(")")?;
            return Self::function(&name, false, arguments);
        }
        Ok(Tree::leaf(match (local, name) {
            (Some(place), _) => Node::Local(place),
            (None, "device") => Node::Device,
            (None, "true") => Node::Bool(true),
            (None, "false") => Node::Bool(false),
            (None, "null") => Node::Null,
            (None, _) => return Err(Invalid::UnknownName { name: name.to_owned() }),
        }))
    }

    fn has(&mut self) -> Result<Tree, Invalid> {
        let argument = self.expression()?;
        self.expect(")")?;
        match argument.node {
            Node::Field { of, name, optional: false } => {
                Ok(Tree { node: Node::Has { of, name }, depth: argument.depth })
            }
            _ => Err(Invalid::Syntax { message: "has() needs a field".to_owned() }),
        }
    }

    fn bind(&mut self) -> Result<Tree, Invalid> {
        let name = self.name()?;
        self.expect(",")?;
        let value = self.expression()?;
        self.expect(",")?;
        let body = self.with_local(name)?;
        self.expect(")")?;
        let deepest = value.depth.max(body.depth);
        Tree::above(Node::Let { value: Box::new(value.node), body: Box::new(body.node) }, deepest)
    }

    fn with_local(&mut self, name: String) -> Result<Tree, Invalid> {
        self.locals.push(name);
        let tree = self.expression();
        self.locals.pop();
        tree
    }

    /// What may follow a value: fields, indices, methods.
    fn members(&mut self, mut tree: Tree) -> Result<Tree, Invalid> {
        loop {
            if self.accept("[") || self.accept("[?") {
                let optional = self.tokens[self.next - 1] == Token::Sign("[?");
                let key = self.expression()?;
                self.expect("]")?;
                let function = if optional { Function::OptionalIndex } else { Function::Index };
                tree = Self::call(function, vec![tree, key])?;
            } else if self.accept(".?") {
                tree = Self::field(tree, &self.name()?, true)?;
            } else if self.accept(".") {
                let name = self.name()?;
                tree = if self.accept("(") {
                    self.method(tree, &name)?
                } else {
                    Self::field(tree, &name, false)?
                };
            } else {
                return Ok(tree);
            }
        }
    }

    fn field(of: Tree, name: &str, optional: bool) -> Result<Tree, Invalid> {
        let depth = of.depth;
        Tree::above(Node::Field { of: Box::new(of.node), name: name.into(), optional }, depth)
    }

    fn method(&mut self, of: Tree, name: &str) -> Result<Tree, Invalid> {
        if ["all", "exists", "exists_one", "existsOne", "filter", "map"].contains(&name) {
            return self.each(of, name);
        }
        let mut arguments = vec![of];
        arguments.extend(self.list(")")?);
        Self::function(name, true, arguments)
    }

    fn each(&mut self, range: Tree, name: &str) -> Result<Tree, Invalid> {
        let item = self.name()?;
        self.expect(",")?;
        let first = self.with_local(item.clone())?;
        let mut deepest = range.depth.max(first.depth);
        let goal = match name {
            "all" => Goal::All(first.node),
            "exists" => Goal::Exists(first.node),
            "exists_one" | "existsOne" => Goal::ExistsOne(first.node),
            "filter" => Goal::Filter(first.node),
            _ if self.accept(",") => {
                let value = self.with_local(item)?;
                deepest = deepest.max(value.depth);
                Goal::Map { test: Some(first.node), value: value.node }
            }
            _ => Goal::Map { test: None, value: first.node },
        };
        self.expect(")")?;
        Tree::above(Node::Each(Box::new(Each { range: range.node, goal })), deepest)
    }

    fn function(name: &str, is_method: bool, arguments: Vec<Tree>) -> Result<Tree, Invalid> {
        let signature = FUNCTIONS.iter().find(|one| one.name == name && one.form.allows(is_method));
        let Some(signature) = signature else {
            return Err(Invalid::UnknownFunction { name: name.to_owned() });
        };
        if !signature.arguments.contains(&arguments.len()) {
            let arguments = arguments.len();
            return Err(Invalid::WrongArguments { name: name.to_owned(), arguments });
        }
        Self::call(signature.function, arguments)
    }
}
