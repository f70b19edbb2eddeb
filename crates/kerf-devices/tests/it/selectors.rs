//! What Kubernetes documents for device selectors, case by case.

use std::collections::BTreeMap;
use std::sync::Arc;

use kerf_devices::device::{Attribute, Device};
use kerf_devices::selector::{Failure, Invalid, Selector};

use crate::builders::{DRIVER, With, device};

/// A device with an attribute of each type in the domain of its driver, one in another domain, and a capacity.
fn sample() -> Device {
    device("sample")
        .int("cores", 108)
        .text("model", "A100-SXM4")
        .attribute("healthy", Attribute::Bool(true))
        .attribute("driverVersion", Attribute::Version("12.4.1".into()))
        .attribute("numas", Attribute::Ints(vec![0, 2]))
        .attribute("modes", Attribute::Strings(vec!["mig".into(), "vgpu".into()]))
        .attribute("firmwares", Attribute::Versions(vec!["1.0.0".into(), "2.1.0".into()]))
        .attribute("flags", Attribute::Bools(vec![true]))
        .text("ext.example.com/family", "ampere")
        .capacity("memory", "40Gi")
        .capacity("ext.example.com/lanes", "16")
        .shared()
}

fn check(expression: &str, expect: Result<bool, &str>) {
    let selector =
        Selector::compile(expression).unwrap_or_else(|one| panic!("{expression}: {one}"));
    let answer = selector.matches(&sample().kind);
    let answer = answer.as_ref().map(|matches| *matches).map_err(failure_name);
    assert_eq!(answer, expect, "{expression}");
}

fn failure_name(failure: &Failure) -> &'static str {
    match failure {
        Failure::NoSuchKey { .. } => "NoSuchKey",
        Failure::NoOverload { .. } => "NoOverload",
        Failure::NotA { .. } => "NotA",
        Failure::OutOfRange { .. } => "OutOfRange",
        Failure::TooExpensive => "TooExpensive",
        Failure::NotBoolean { .. } => "NotBoolean",
    }
}

#[test]
fn sees_the_device() {
    let cases = [
        ("true", Ok(true)),
        (r#"device.driver == "gpu.example.com""#, Ok(true)),
        (r#"device.driver == "other""#, Ok(false)),
        ("device.allowMultipleAllocations", Ok(true)),
        ("device.allowMultipleAllocations == false", Ok(false)),
        (r#"device.attributes["gpu.example.com"].healthy"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"]["healthy"]"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].cores > 100"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].model == "A100-SXM4""#, Ok(true)),
        (r#"device.attributes["ext.example.com"].family == "ampere""#, Ok(true)),
        ("device.attributes[device.driver].healthy", Ok(true)),
        ("1", Err("NotBoolean")),
        (r#"device.attributes["gpu.example.com"].model"#, Err("NotBoolean")),
        ("device.name == 'x'", Err("NoSuchKey")),
    ];
    for (expression, expect) in cases {
        check(expression, expect);
    }
}

#[test]
fn unknown_domains_are_empty_and_unknown_attributes_fail() {
    let cases = [
        (r#"device.attributes["none"].healthy"#, Err("NoSuchKey")),
        (r#"device.attributes["gpu.example.com"].none == 1"#, Err("NoSuchKey")),
        (r#"device.capacity["none"].memory.isGreaterThan(quantity("0"))"#, Err("NoSuchKey")),
        (r#""none" in device.attributes"#, Ok(false)),
        (r#""gpu.example.com" in device.attributes"#, Ok(true)),
        (r#""healthy" in device.attributes["gpu.example.com"]"#, Ok(true)),
        (r#""healthy" in device.attributes["none"]"#, Ok(false)),
        (r#"has(device.attributes["gpu.example.com"].healthy)"#, Ok(true)),
        (r#"has(device.attributes["none"].healthy)"#, Ok(false)),
        (r#"has(device.attributes["none"].x) && device.attributes["none"].x"#, Ok(false)),
        (r#"device.attributes["none"].x || true"#, Ok(true)),
        (r#"true || device.attributes["none"].x"#, Ok(true)),
        (r#"device.attributes["none"].x && false"#, Ok(false)),
        (r#"device.attributes["none"].x && true"#, Err("NoSuchKey")),
        (r#"device.attributes["none"].?x.orValue(true)"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].?cores.orValue(0) == 108"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].?none.hasValue()"#, Ok(false)),
        (r#"device.attributes["none"] == {}"#, Ok(true)),
        ("device.attributes.exists_one(domain, domain == 'ext.example.com')", Ok(true)),
        ("device.attributes.size() == 2", Ok(true)),
        (r#"device.capacity["gpu.example.com"].exists(name, name == "memory")"#, Ok(true)),
        ("device.capacity.all(domain, domain.endsWith('example.com'))", Ok(true)),
    ];
    for (expression, expect) in cases {
        check(expression, expect);
    }
}

#[test]
fn compares_quantities_and_versions() {
    let cases = [
        (r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) == 0"#, Ok(true)),
        (r#"device.capacity["gpu.example.com"].memory == quantity("40960Mi")"#, Ok(true)),
        (r#"device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))"#, Ok(false)),
        (r#"device.capacity["gpu.example.com"].memory.isLessThan(quantity("1Ti"))"#, Ok(true)),
        (r#"device.capacity["ext.example.com"].lanes.asInteger() == 16"#, Ok(true)),
        (
            r#"device.capacity["ext.example.com"].lanes.add(4).sub(quantity("1")) == quantity("19")"#,
            Ok(true),
        ),
        (r#"quantity("-1").sign() == -1 && quantity("500m").isInteger() == false"#, Ok(true)),
        (r#"quantity("500m").asInteger() == 0"#, Err("OutOfRange")),
        (r#"isQuantity("5Q") || isQuantity("")"#, Ok(false)),
        (r#"quantity("many") == quantity("1")"#, Err("NotA")),
        (r#"device.capacity["gpu.example.com"].memory > 5"#, Err("NoOverload")),
        (
            r#"device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("12.0.0"))"#,
            Ok(true),
        ),
        (
            r#"device.attributes["gpu.example.com"].driverVersion.compareTo(semver("12.4.1")) == 0"#,
            Ok(true),
        ),
        (
            r#"device.attributes["gpu.example.com"].driverVersion == semver("v12.4.01", true)"#,
            Ok(true),
        ),
        (r#"device.attributes["gpu.example.com"].driverVersion.major() == 12"#, Ok(true)),
        (r#"semver("1.0.0-rc.1").isLessThan(semver("1.0.0"))"#, Ok(true)),
        (r#"isSemver("1.2") || isSemver("v1.2.3")"#, Ok(false)),
        (r#"isSemver("v1.2", true)"#, Ok(true)),
        (r#"semver("1.2").major() == 1"#, Err("NotA")),
        (
            r#"device.attributes["gpu.example.com"].driverVersion.isLessThan(quantity("1"))"#,
            Err("NoOverload"),
        ),
    ];
    for (expression, expect) in cases {
        check(expression, expect);
    }
}

#[test]
fn goes_through_lists() {
    let cases = [
        (r#"device.attributes["gpu.example.com"].numas.exists(numa, numa == 2)"#, Ok(true)),
        (r#"2 in device.attributes["gpu.example.com"].numas"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].numas.size() == 2"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].modes.all(mode, mode != "")"#, Ok(true)),
        (
            r#"device.attributes["gpu.example.com"].firmwares.all(v, v.isGreaterThan(semver("0.9.0")))"#,
            Ok(true),
        ),
        (r#"device.attributes["gpu.example.com"].model.exists(x, x == "A")"#, Err("NoOverload")),
        (r#"device.attributes["gpu.example.com"].model.includes("A100-SXM4")"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].modes.includes("mig")"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].modes.includes("none")"#, Ok(false)),
        (r#"device.attributes["gpu.example.com"].flags.includes(true)"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].firmwares.includes(semver("2.1.0"))"#, Ok(true)),
        ("[1, 2, 3].filter(x, x > 1).map(x, x * 2) == [4, 6]", Ok(true)),
        ("[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]", Ok(true)),
        ("[1, 2, 2].exists_one(x, x == 2)", Ok(false)),
        ("[1, 0].exists(x, 1 / x == 1)", Ok(true)),
        ("[0, 2].exists(x, 1 / x == 1)", Err("OutOfRange")),
        ("[0, 1].all(x, 1 / x == 2)", Ok(false)),
        ("[3, 1, 2].min() == 1 && [3, 1, 2].max() == 3 && [3, 1, 2].sum() == 6", Ok(true)),
        ("sets.contains([1, 2], [2]) && sets.intersects([1], [1, 3])", Ok(true)),
        ("sets.equivalent([1, 2, 2], [2, 1])", Ok(true)),
    ];
    for (expression, expect) in cases {
        check(expression, expect);
    }
}

#[test]
fn binds_values_to_names() {
    let cases = [
        (
            r#"cel.bind(gpu, device.attributes["gpu.example.com"], gpu.healthy && gpu.cores == 108)"#,
            Ok(true),
        ),
        (r#"cel.bind(a, device.attributes, has(a["none"].x))"#, Ok(false)),
        ("cel.bind(x, 1, cel.bind(y, x + 1, cel.bind(x, 5, x + y))) == 7", Ok(true)),
        ("cel.bind(x, 1, [2, 3].all(x, x > 1) && x == 1)", Ok(true)),
        ("cel.bind(device, 1, device == 1)", Ok(true)),
        ("[1, 2].all(x, [3].exists(y, y > x)) && [[1]].all(x, x.all(y, y == 1))", Ok(true)),
    ];
    for (expression, expect) in cases {
        check(expression, expect);
    }
}

#[test]
fn works_with_strings() {
    let cases = [
        (r#"device.attributes["gpu.example.com"].model.startsWith("A100")"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].model.lowerAscii().contains("sxm")"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].model.matches("^[AH]100(-SXM[45])?$")"#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].model.matches("(")"#, Err("NotA")),
        (r#"device.attributes["gpu.example.com"].model.split("-")[1] == "SXM4""#, Ok(true)),
        (r#"device.attributes["gpu.example.com"].model.split("-")[2] == """#, Err("OutOfRange")),
        (r#""a-b-c".split("-", 2) == ["a", "b-c"] && "ab".split("") == ["a", "b"]"#, Ok(true)),
        (r#""tacocat".indexOf("ac") == 1 && "tacocat".lastIndexOf("a") == 5"#, Ok(true)),
        (r#""tacocat".substring(4) == "cat" && "tacocat".substring(0, 4) == "taco""#, Ok(true)),
        (r#""grün".size() == 4 && "grün".charAt(2) == "ü" && "grün".indexOf("n") == 3"#, Ok(true)),
        (r#""x".substring(2) == "" "#, Err("OutOfRange")),
        (r#""x".substring(1, 0) == "" "#, Err("OutOfRange")),
        (r#""1 2".replace(" ", "").find("[0-9]+") == "12""#, Ok(true)),
        (r#"int("12") + 1 == 13 && string(7) == "7" && ["a", "b"].join(",") == "a,b""#, Ok(true)),
        (r#"int("many") == 1"#, Err("NotA")),
        (r#""\u0041\x42\103\n" == 'ABC' + r"\n""#, Ok(false)),
        (r#""\u0041\x42\103" == """ABC""" // a comment"#, Ok(true)),
        (r#"" a ".trim().upperAscii() == "A""#, Ok(true)),
    ];
    for (expression, expect) in cases {
        check(expression, expect);
    }
}

#[test]
fn computes_without_overflow() {
    let cases = [
        ("1 + 2 * 3 - 4 / 2 % 3 == 5", Ok(true)),
        ("9223372036854775807 + 1 > 0", Err("OutOfRange")),
        ("-9223372036854775808 < 0", Ok(true)),
        ("-(-9223372036854775808) > 0", Err("OutOfRange")),
        ("-9223372036854775808 / -1 > 0", Err("OutOfRange")),
        ("1 / 0 == 1 || 1 % 0 == 1", Err("OutOfRange")),
        ("0x10 == 16 && 3u > 2 && 2.5 > 2 && 1e3 == 1000.0", Ok(true)),
        ("1 == 1.0 && 1u == 1 && '1' != 1", Ok(true)),
        ("'a' < 1", Err("NoOverload")),
        ("!(1 > 2) && !!true", Ok(true)),
        ("!1", Err("NoOverload")),
        ("1 > 2 ? 1 / 0 == 1 : true", Ok(true)),
        ("{'a': 1}.a == 1 && {'a': 1, 'b': 2} == {'b': 2, 'a': 1}", Ok(true)),
        ("double(3) / 2.0 == 1.5 && int(1.9) == 1", Ok(true)),
        ("int(1e30) == 1", Err("OutOfRange")),
        ("null == null", Ok(true)),
    ];
    for (expression, expect) in cases {
        check(expression, expect);
    }
}

#[test]
fn evaluation_costs() {
    let list = "[0,1,2,3,4,5,6,7,8,9]";
    let nested =
        (0..7).fold("true".to_owned(), |inner, level| format!("{list}.all(x{level}, {inner})"));
    check(&nested, Err("TooExpensive"));
    // A text that doubles thirty times.
    let mut text = "x30.size() > 0".to_owned();
    for level in (0..30).rev() {
        text = format!("cel.bind(x{}, x{level} + x{level}, {text})", level + 1);
    }
    check(&format!("cel.bind(x0, 'ab', {text})"), Err("TooExpensive"));
    // Lists within lists.
    let mut lists = "x30 == x30".to_owned();
    for level in (0..30).rev() {
        lists = format!("cel.bind(x{}, [x{level}, x{level}], {lists})", level + 1);
    }
    check(&format!("cel.bind(x0, 1, {lists})"), Err("TooExpensive"));
    // A cost that is too high cannot be hidden behind an alternative.
    check(&format!("{nested} || true"), Err("TooExpensive"));
}

#[test]
fn refuses_by_name_what_it_does_not_know() {
    let long = format!("'{}' == ''", "x".repeat(11_000));
    let deep = |open: &str, close: &str| format!("{}true{}", open.repeat(100), close.repeat(100));
    let sums = format!("1{} > 0", " + 1".repeat(2000));
    let cases = [
        ("", "Syntax"),
        ("?!", "Syntax"),
        ("true true", "Syntax"),
        ("(true", "Syntax"),
        ("'open", "Syntax"),
        (r"'\q' == ''", "Syntax"),
        ("99999999999999999999 > 0", "Syntax"),
        ("has(device)", "Syntax"),
        ("#", "Syntax"),
        ("devices.driver == ''", "UnknownName"),
        ("[1].all(x, true) && x == 1", "UnknownName"),
        ("ip('10.0.0.1') == ip('10.0.0.2')", "UnknownFunction"),
        ("device.driver.frobnicate()", "UnknownFunction"),
        ("quantity()", "WrongArguments"),
        ("'a'.startsWith()", "WrongArguments"),
        ("b'abc' == b'abc'", "Unsupported"),
        (long.as_str(), "TooLong"),
        (&deep("(", ")"), "TooDeep"),
        (&deep("[", "]"), "TooDeep"),
        (&deep("!", ""), "TooDeep"),
        (&deep("[1].all(x, ", ")"), "TooDeep"),
        (&deep("true ? false : ", ""), "TooDeep"),
        (sums.as_str(), "TooDeep"),
    ];
    for (expression, expect) in cases {
        let name = match Selector::compile(expression) {
            Ok(_) => "none",
            Err(Invalid::TooLong { .. }) => "TooLong",
            Err(Invalid::TooDeep) => "TooDeep",
            Err(Invalid::Syntax { .. }) => "Syntax",
            Err(Invalid::UnknownName { .. }) => "UnknownName",
            Err(Invalid::UnknownFunction { .. }) => "UnknownFunction",
            Err(Invalid::WrongArguments { .. }) => "WrongArguments",
            Err(Invalid::Unsupported { .. }) => "Unsupported",
        };
        assert_eq!(name, expect, "{}", &expression[..expression.len().min(60)]);
    }
}

#[test]
fn long_chains_of_alternatives_are_fine() {
    let chain = vec![r#"device.driver == "x""#; 400].join(" || ");
    check(&chain, Ok(false));
    check(&format!("{chain} || device.driver == '{DRIVER}'"), Ok(true));
}

#[test]
fn a_name_with_its_domain_is_the_same_attribute() {
    let kind = |name: &str| device("one").int(name, 1).kind;
    assert_eq!(kind("cores"), kind("gpu.example.com/cores"));
    let attributes: BTreeMap<Arc<str>, _> = kind("cores").attributes.clone();
    assert!(attributes.contains_key(DRIVER));
}
