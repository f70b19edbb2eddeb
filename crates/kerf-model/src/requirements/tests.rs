use super::*;
use crate::labels::{INSTANCE_TYPE, ZONE};
use crate::requirement::Operator;

fn on(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement::new(key, operator, values.iter().copied())
}

fn set(requirements: &[Requirement]) -> Requirements {
    requirements.iter().cloned().collect()
}

/// The matrix of one key: rows are the node side, columns the incoming side.
#[test]
fn compatibility_of_one_key_follows_the_matrix() {
    use Operator::{DoesNotExist, Exists, Gt, Gte, In, Lt, NotIn};
    type Shape<'a> = Option<(Operator, &'a [&'a str])>;
    let shapes: [(&str, Shape<'_>); 14] = [
        ("-", None),
        ("Exists", Some((Exists, &[]))),
        ("DoesNotExist", Some((DoesNotExist, &[]))),
        ("In A", Some((In, &["A"]))),
        ("In B", Some((In, &["B"]))),
        ("In A B", Some((In, &["A", "B"]))),
        ("NotIn A", Some((NotIn, &["A"]))),
        ("In 1", Some((In, &["1"]))),
        ("In 9", Some((In, &["9"]))),
        ("Gt 1", Some((Gt, &["1"]))),
        ("Gt 9", Some((Gt, &["9"]))),
        ("Lt 1", Some((Lt, &["1"]))),
        ("Lt 9", Some((Lt, &["9"]))),
        ("Gte 9", Some((Gte, &["9"]))),
    ];
    //                  -  E  D  A  B AB !A  1  9 >1 >9 <1 <9 >=9
    let lenient = [
        /* -       */ "✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓",
        /* Exists  */ "✓ ✓ x ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓",
        /* DNE     */ "✓ x ✓ x x x ✓ x x x x x x x",
        /* In A    */ "✓ ✓ x ✓ x ✓ x x x x x x x x",
        /* In B    */ "✓ ✓ x x ✓ ✓ ✓ x x x x x x x",
        /* In A B  */ "✓ ✓ x ✓ ✓ ✓ ✓ x x x x x x x",
        /* NotIn A */ "✓ ✓ ✓ x ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓",
        /* In 1    */ "✓ ✓ x x x x ✓ ✓ x x x x ✓ x",
        /* In 9    */ "✓ ✓ x x x x ✓ x ✓ ✓ x x x ✓",
        /* Gt 1    */ "✓ ✓ x x x x ✓ x ✓ ✓ ✓ x ✓ ✓",
        /* Gt 9    */ "✓ ✓ x x x x ✓ x x ✓ ✓ x x ✓",
        /* Lt 1    */ "✓ ✓ x x x x ✓ x x x x ✓ ✓ x",
        /* Lt 9    */ "✓ ✓ x x x x ✓ ✓ x ✓ x ✓ ✓ x",
        /* Gte 9   */ "✓ ✓ x x x x ✓ x ✓ ✓ ✓ x x ✓",
    ];
    let strict_first_row = "✓ x ✓ x x x ✓ x x x x x x x";
    let labels = KnownLabels::default();
    let side = |shape: &Shape<'_>| {
        shape.iter().map(|(operator, values)| on(ZONE, *operator, values)).collect::<Requirements>()
    };
    for (row, (row_name, node)) in shapes.iter().enumerate() {
        for (column, (column_name, incoming)) in shapes.iter().enumerate() {
            let cell = |line: &str| line.split(' ').nth(column) == Some("✓");
            let (node, incoming) = (side(node), side(incoming));
            let got = node.compatible(&incoming, Undefined::WellKnown(&labels)).is_ok();
            assert_eq!(got, cell(lenient[row]), "lenient: {row_name} with {column_name}");
            let got = node.compatible(&incoming, Undefined::Refused).is_ok();
            let expect = if row == 0 { strict_first_row } else { lenient[row] };
            assert_eq!(got, cell(expect), "strict: {row_name} with {column_name}");
        }
    }
}

#[test]
fn custom_labels_must_be_defined() {
    let labels = KnownLabels::default();
    let node = set(&[on("team", Operator::In, &["a"])]);
    for (requirement, compatible) in [
        (on("team", Operator::In, &["a"]), true),
        (on("team", Operator::In, &["b"]), false),
        (on("other", Operator::In, &["a"]), false),
        (on("other", Operator::Exists, &[]), false),
        (on("other", Operator::NotIn, &["a"]), true),
        (on("other", Operator::DoesNotExist, &[]), true),
        (on(ZONE, Operator::In, &["a"]), true),
    ] {
        let result = node
            .compatible(&set(std::slice::from_ref(&requirement)), Undefined::WellKnown(&labels));
        assert_eq!(result.is_ok(), compatible, "{requirement}");
    }
}

#[test]
fn labels_meet_what_they_are_strictly_compatible_with() {
    let labels: Labels =
        [("team".to_owned(), "a".to_owned()), (ZONE.to_owned(), "z".to_owned())].into();
    let node = Requirements::from_labels(&labels);
    for operator in
        [Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist, Operator::Gt]
    {
        for key in ["team", ZONE, "other"] {
            for values in [&["a"][..], &["b"], &["a", "z"]] {
                let wanted = set(&[on(key, operator, values)]);
                let strict = node.compatible(&wanted, Undefined::Refused).is_ok();
                assert_eq!(wanted.are_met_by(&labels), strict, "{wanted}");
            }
        }
    }
}

#[test]
fn hints_at_the_key_that_was_meant() {
    let labels = KnownLabels::default();
    let node = set(&[on("example.com/team", Operator::In, &["a"])]);
    for (key, hint) in [
        ("zone", Some("topology.kubernetes.io/zone")),
        ("region", Some("topology.kubernetes.io/region")),
        ("node.io/zone", Some("topology.kubernetes.io/zone")),
        ("topology.kubernetes.io/regio", Some("topology.kubernetes.io/region")),
        ("karpenter/nodepool", Some("karpenter.sh/nodepool")),
        ("instance-type", Some(INSTANCE_TYPE)),
        ("arch", Some("kubernetes.io/arch")),
        ("wrong/arch", Some("kubernetes.io/arch")),
        ("team", Some("example.com/team")),
        ("deployment", None),
    ] {
        let error = node
            .compatible(&set(&[on(key, Operator::In, &["a"])]), Undefined::WellKnown(&labels))
            .unwrap_err();
        let expect =
            Incompatible::UndefinedLabel { key: key.to_owned(), hint: hint.map(str::to_owned) };
        assert_eq!(error, expect);
    }
}

#[test]
fn errors_name_the_label_and_both_sides() {
    let labels = KnownLabels::default();
    let node = set(&[on(ZONE, Operator::In, &["a"]), on("team", Operator::In, &["x"])]);
    let incoming = set(&[on(ZONE, Operator::In, &["b"]), on("team", Operator::NotIn, &["x"])]);
    let error = node.compatible(&incoming, Undefined::WellKnown(&labels)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "key team, team NotIn [x] not in team In [x]; key topology.kubernetes.io/zone, \
         topology.kubernetes.io/zone In [b] not in topology.kubernetes.io/zone In [a]"
    );
    let error = node
        .compatible(&set(&[on("zone", Operator::Exists, &[])]), Undefined::WellKnown(&labels))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "label \"zone\" does not have known values (typo of \"topology.kubernetes.io/zone\"?)"
    );
}

#[test]
fn adding_narrows_and_replacing_does_not() {
    let mut requirements = set(&[on(ZONE, Operator::In, &["a", "b"])]);
    requirements.add(on(ZONE, Operator::NotIn, &["a"]));
    assert_eq!(requirements.get(ZONE).and_then(Requirement::only_value), Some("b"));
    requirements.add(on(ZONE, Operator::Exists, &[]));
    assert_eq!(requirements.get(ZONE).and_then(Requirement::only_value), Some("b"));
    requirements.replace(on(ZONE, Operator::In, &["c"]));
    assert_eq!(requirements.get(ZONE).and_then(Requirement::only_value), Some("c"));
}

#[test]
fn prints_sorted_without_the_hostname() {
    let requirements = set(&[
        on("b", Operator::Exists, &[]),
        on(HOSTNAME, Operator::In, &["placeholder"]),
        on("a", Operator::In, &["2", "1"]),
    ]);
    assert_eq!(requirements.to_string(), "a In [1 2], b Exists");
}
