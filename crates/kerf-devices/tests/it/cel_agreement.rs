//! The crate `cel` as a second opinion on operators, macros and strings: what Kubernetes adds, and errors in detail, are not compared.

use cel::{Context, Program, Value};
use proptest::prelude::*;

use kerf_devices::selector::Selector;

use crate::builders::device;

/// Integers only: to the crate 1 and 1.0 are not equal, and 0.0 is not in [0].
fn number() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => (-3..4_i64).prop_map(|value| value.to_string()),
        1 => Just("9223372036854775807".to_owned()),
        1 => Just("x".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), "[-+*/%]", inner.clone())
                .prop_map(|(a, sign, b)| format!("{a} {sign} {b}")),
            inner.clone().prop_map(|a| format!("({a})")),
            // Negating the least integer ends the crate with a panic, where overflows are checked.
            inner.clone().prop_map(|a| format!("0 - ({a})")),
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|all| format!("size([{}])", all.join(", "))),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}][{b}]")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("{{'k': {a}, 'l': {b}}}.k")),
        ]
    })
}

fn text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("'ab'".to_owned()),
        Just("\"b\"".to_owned()),
        Just("''".to_owned()),
        Just(r"'\u0061b'".to_owned())
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        (inner.clone(), inner).prop_map(|(a, b)| format!("({a} + {b})"))
    })
}

fn logical() -> impl Strategy<Value = String> {
    let compare =
        || prop_oneof![Just("=="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">=")];
    let leaf = prop_oneof![
        Just("true".to_owned()),
        Just("false".to_owned()),
        (number(), compare(), number()).prop_map(|(a, sign, b)| format!("{a} {sign} {b}")),
        (text(), compare(), text()).prop_map(|(a, sign, b)| format!("{a} {sign} {b}")),
        (text(), compare(), number()).prop_map(|(a, sign, b)| format!("{a} {sign} {b}")),
        (text(), prop_oneof![Just("startsWith"), Just("endsWith"), Just("contains")], text())
            .prop_map(|(a, name, b)| format!("{a}.{name}({b})")),
        (number(), prop::collection::vec(number(), 0..3))
            .prop_map(|(a, all)| format!("{a} in [{}]", all.join(", "))),
        (text(), prop::collection::vec(text(), 0..3))
            .prop_map(|(a, all)| format!("{a} in [{}]", all.join(", "))),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let macros = prop_oneof![Just("all"), Just("exists"), Just("exists_one")];
        prop_oneof![
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} && {b}")),
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
            1 => inner.clone().prop_map(|a| format!("!({a})")),
            1 => (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            2 => (prop::collection::vec(number(), 0..4), macros, inner.clone())
                .prop_map(|(all, name, test)| format!("[{}].{name}(x, {test})", all.join(", "))),
            1 => (prop::collection::vec(number(), 0..4), inner.clone(), number())
                .prop_map(|(all, test, value)| format!("[{}].filter(x, {test}).map(x, {value}) == []", all.join(", "))),
        ]
    })
}

/// True, false, or None for any failure.
fn second_opinion(expression: &str) -> Option<bool> {
    let mut context = Context::default();
    context.add_variable_from_value("x", 1);
    match Program::compile(expression).ok()?.execute(&context) {
        Ok(Value::Bool(answer)) => Some(answer),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_crate_cel(expression in logical()) {
        let bound = format!("cel.bind(x, 1, {expression})");
        let selector = Selector::compile(&bound).unwrap_or_else(|one| panic!("{expression}: {one}"));
        let answer = selector.matches(&device("one").kind).ok();
        let second = second_opinion(&expression);
        // `[error, true].exists(x, x)` is true by the specification of CEL; the crate ends with the first error.
        let ends_early = second.is_none() && [".all(", ".exists("].iter().any(|one| expression.contains(one));
        prop_assert!(answer == second || ends_early, "{}: {:?} and {:?}", expression, answer, second);
    }

    #[test]
    fn no_text_is_too_odd(text in "[-+*/%.(){}<>=!&|?:,'\" a-z0-9\\\\\\[\\]\n]{0,40}") {
        if let Ok(selector) = Selector::compile(&text) {
            let _ = selector.matches(&device("one").kind);
        }
    }
}
