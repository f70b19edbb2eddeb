use super::*;

/// `In a b`, `NotIn a`, `Exists`, `Gt 5`, several joined by `&`, with `min 3` last.
fn requirement(text: &str) -> Requirement {
    text.split('&')
        .map(|part| {
            let mut words = part.split_whitespace();
            let operator: Operator = words.next().unwrap().parse().unwrap();
            let mut values: Vec<_> = words.map(str::to_owned).collect();
            let min = values.iter().position(|word| word == "min").map(|at| {
                let min = values[at + 1].parse().unwrap();
                values.truncate(at);
                min
            });
            Requirement::new("key", operator, values).with_min_values(min)
        })
        .reduce(|a, b| a.intersection(&b))
        .unwrap()
}

fn printed(requirement: &Requirement) -> String {
    requirement.to_string().strip_prefix("key ").unwrap().to_owned()
}

#[test]
fn every_operator_has_its_set() {
    for (text, shape, within, without) in [
        ("In a b", "In [a b]", vec!["a", "b"], vec!["c", ""]),
        ("In", "In []", vec![], vec!["a", ""]),
        ("NotIn a", "NotIn [a]", vec!["b", "", "7"], vec!["a"]),
        ("Exists", "Exists", vec!["a", "", "7"], vec![]),
        ("DoesNotExist", "DoesNotExist", vec![], vec!["a", ""]),
        ("Gt 5", "Exists >=6", vec!["6", "+7"], vec!["5", "a", "", "6.5"]),
        ("Gte 5", "Exists >=5", vec!["5", "6"], vec!["4", "a"]),
        ("Lt 5", "Exists <=4", vec!["4", "-1"], vec!["5", "a"]),
        ("Lte 5", "Exists <=5", vec!["5"], vec!["6", "a"]),
        ("Gt 9223372036854775807", "In []", vec![], vec!["9223372036854775807"]),
        ("Lt -9223372036854775808", "In []", vec![], vec!["0"]),
        ("Gt x", "Exists >=1", vec!["1"], vec!["0"]),
    ] {
        let requirement = requirement(text);
        assert_eq!(printed(&requirement), shape, "{text}");
        for value in within {
            assert!(requirement.has(value), "{text} has {value:?}");
        }
        for value in without {
            assert!(!requirement.has(value), "{text} has not {value:?}");
        }
    }
}

#[test]
fn intersections_narrow() {
    for (a, b, expect) in [
        ("In a b", "In b c", "In [b]"),
        ("In a", "In b", "In []"),
        ("NotIn a", "DoesNotExist", "DoesNotExist"),
        ("In a b", "NotIn b", "In [a]"),
        ("NotIn a", "In a", "In []"),
        ("NotIn a", "NotIn b", "NotIn [a b]"),
        ("NotIn a", "Exists", "NotIn [a]"),
        ("Exists", "Exists", "Exists"),
        ("Exists", "DoesNotExist", "In []"),
        ("In a", "DoesNotExist", "In []"),
        ("In 1 5 9 x", "Gt 4", "In [5 9]"),
        ("In 1 5 9 x", "Lt 4", "In [1]"),
        ("In 1 5 9", "Gte 5 & Lte 5", "In [5]"),
        ("NotIn 5 20 x", "Gt 4 & Lt 10", "NotIn [5] >=5 <=9"),
        ("Gt 5", "Lt 3", "In []"),
        ("Gt 5", "Lt 7", "Exists >=6 <=6"),
        ("Gt 5", "Gt 7", "Exists >=8"),
        ("Lte 5", "Lte 3", "Exists <=3"),
        ("Gt 0", "Gte 0", "Exists >=1"),
        ("In a min 2", "In a b min 3", "In [a] minValues 3"),
        ("Gt 5 min 2", "Lt 3", "In [] minValues 2"),
        ("Exists min 2", "In a b c", "In [a b c] minValues 2"),
    ] {
        let (left, right) = (requirement(a), requirement(b));
        assert_eq!(printed(&left.intersection(&right)), expect, "{a} ∧ {b}");
        assert_eq!(printed(&right.intersection(&left)), expect, "{b} ∧ {a}");
    }
}

#[test]
fn intersects_agrees_with_the_intersection_except_for_excluded_ranges() {
    let shapes = [
        "In a",
        "In a b",
        "In 1",
        "In 1 9",
        "NotIn a",
        "NotIn a b",
        "NotIn 1",
        "Exists",
        "DoesNotExist",
        "Gt 1",
        "Lt 1",
        "Gte 9",
        "Lte 9",
        "Gt 1 & Lt 9",
        "NotIn 5 & Gt 1",
    ];
    for a in shapes {
        for b in shapes {
            let (left, right) = (requirement(a), requirement(b));
            let both = left.intersection(&right);
            let empty = both.listed().is_some_and(<[String]>::is_empty);
            assert_eq!(left.intersects(&right), !empty, "{a} with {b}");
            assert_eq!(left.intersects(&right), right.intersects(&left), "{a} with {b}");
        }
    }
    // Five is the only number in range and it is excluded, yet complements are taken to meet.
    assert!(requirement("NotIn 5").intersects(&requirement("Gte 5 & Lte 5")));
}

#[test]
fn absence_is_allowed_only_when_both_sides_allow_it() {
    for (text, absent) in [
        ("NotIn a", true),
        ("NotIn", false),
        ("DoesNotExist", true),
        ("NotIn a & NotIn b", true),
        ("NotIn a & DoesNotExist", true),
        ("NotIn a & Exists", false),
        ("NotIn a & Gt 3", false),
        ("In a & In b", false),
        ("Gt 3 & Lt 1", false),
        ("In a & DoesNotExist", false),
    ] {
        assert_eq!(requirement(text).allows_absence(), absent, "{text}");
    }
    assert!(requirement("In a & In b").is_impossible());
    assert!(!requirement("DoesNotExist").is_impossible());
}

#[test]
fn a_value_for_a_label_is_an_allowed_one() {
    for (text, expect) in [
        ("In a", Some("a")),
        ("Exists", Some("0")),
        ("NotIn 0 1", Some("2")),
        ("Gt 5", Some("6")),
        ("NotIn 6 7 & Gt 5", Some("8")),
        ("Lt 0", Some("-1")),
        ("NotIn -1 & Lt 0", Some("-2")),
        ("NotIn 5 & Gte 5 & Lte 5", None),
        ("DoesNotExist", None),
    ] {
        let requirement = requirement(text);
        let value = requirement.value_for("default-x");
        assert_eq!(value.as_deref(), expect, "{text}");
        assert!(value.is_none_or(|value| requirement.has(&value)), "{text}");
    }
    // Written down because nodes that are there keep what they got.
    let mixed = requirement("In a b c");
    let values: String = ["w", "x", "y", "z"].map(|name| mixed.value_for(name).unwrap()).concat();
    assert_eq!(values, "ccaa");
}

#[test]
fn prints_five_values_and_counts_the_rest() {
    assert_eq!(printed(&requirement("In g f e d c b a")), "In [a b c d e and 2 others]");
    assert_eq!(printed(&requirement("In a min 1")), "In [a] minValues 1");
}

#[test]
fn api_form_keeps_bounds_and_exclusions() {
    let api = |text: &str| {
        let expressions = requirement(text).expressions();
        let parts: Vec<_> = expressions
            .iter()
            .map(|entry| {
                let min = entry.min_values.map(|min| format!(" min {min}")).unwrap_or_default();
                format!("{} {}{min}", entry.operator, entry.values.join(" ")).trim().to_owned()
            })
            .collect();
        let again = expressions
            .iter()
            .map(|entry| {
                Requirement::new(&entry.key, entry.operator, &entry.values)
                    .with_min_values(entry.min_values)
            })
            .reduce(|a, b| a.intersection(&b));
        assert_eq!(again, Some(requirement(text)), "{text} does not come back");
        parts.join(", ")
    };
    assert_eq!(api("In b a"), "In a b");
    assert_eq!(api("NotIn a"), "NotIn a");
    assert_eq!(api("Exists min 2"), "Exists  min 2");
    assert_eq!(api("DoesNotExist"), "DoesNotExist");
    assert_eq!(api("Gt 5"), "Gte 6");
    assert_eq!(api("Lt 5 min 3"), "Lte 4 min 3");
    assert_eq!(api("Gt 5 min 2 & Lt 9"), "Gte 6 min 2, Lte 8 min 2");
    assert_eq!(api("NotIn 7 & Gt 5"), "Gte 6, NotIn 7");
    assert_eq!(api("NotIn a & Exists"), "Exists, NotIn a");
    assert_eq!(api("In a & In b"), "In");
}

#[test]
fn rejects_unknown_operator() {
    assert!("in".parse::<Operator>().unwrap_err().to_string().contains("\"in\""));
}

#[test]
fn flexibility_of_the_impossible_is_dropped() {
    assert_eq!(requirement("Gt 9223372036854775807 min 3").min_values(), None);
}

#[test]
fn old_label_names_are_rewritten() {
    let zone = Requirement::is_in("failure-domain.beta.kubernetes.io/zone", ["a"]);
    assert_eq!(zone.key(), "topology.kubernetes.io/zone");
}
