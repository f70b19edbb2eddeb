//! The list of what we use of AWS: crates/kerf-aws-wire/shapes.txt

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) services: Vec<Service>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    /// As botocore names it.
    pub(crate) name: String,
    pub(crate) operations: Vec<String>,
    /// The members that are used, by structure.
    pub(crate) shapes: BTreeMap<String, Vec<String>>,
}

impl Service {
    pub(crate) fn module(&self) -> String {
        self.name.replace('-', "_")
    }
}

impl Selection {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut selection = Self::default();
        // The words of a line and of the indented ones after it.
        let mut entries: Vec<Vec<&str>> = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let words = line.split_whitespace();
            if line.starts_with(' ') {
                entries.last_mut().context("the first line is indented")?.extend(words);
            } else {
                entries.push(words.collect());
            }
        }
        for entry in entries {
            let (first, rest) = entry.split_first().context("an empty line")?;
            let rest: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
            if *first == "service" {
                selection.services.push(Service { name: rest.concat(), ..Service::default() });
                continue;
            }
            let service = selection.services.last_mut().context("a line before any service")?;
            if *first == "operation" {
                service.operations.extend(rest);
            } else {
                let twice = service.shapes.insert((*first).to_owned(), rest).is_some();
                ensure!(!twice, "{first} is listed twice");
            }
        }
        Ok(selection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_services_operations_and_members() {
        let text = "# why\nservice arc-zonal-shift\n\noperation A B\noperation C\nARequest X\n  Y Z\nAResponse\n";
        let selection = Selection::parse(text).unwrap();
        let service = &selection.services[0];
        assert_eq!(service.module(), "arc_zonal_shift");
        assert_eq!(service.operations, ["A", "B", "C"]);
        assert_eq!(service.shapes["ARequest"], ["X", "Y", "Z"]);
        assert!(service.shapes["AResponse"].is_empty());
    }

    #[test]
    fn refuses_what_it_cannot_place() {
        for text in ["ARequest X", "  X", "service a\nA X\nA Y"] {
            assert!(Selection::parse(text).is_err(), "{text}");
        }
    }
}
