//! Figures, and which of them are out of bounds.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    attack: &'static str,
    seed: u64,
    /// Where the logs of the replicas and the audit log are.
    logs: PathBuf,
    figures: Vec<Figure>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tables: Vec<Table>,
    /// What was seen where a figure is out of bounds; the first of each kind.
    details: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
}

/// Figures of the same kind, a line for each thing that they are of.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    pub(super) title: String,
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<(String, Vec<f64>)>,
}

impl Figure {
    fn is_violated(&self) -> bool {
        self.at_most.is_some_and(|most| self.value > most)
    }
}

impl Report {
    pub(super) fn new(attack: &'static str, seed: u64, logs: &Path) -> Self {
        Self {
            attack,
            seed,
            logs: logs.to_owned(),
            figures: Vec::new(),
            tables: Vec::new(),
            details: Vec::new(),
        }
    }

    /// Something that is good to know.
    pub(super) fn figure(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { what: what.into(), value, unit, at_most: None });
    }

    /// Something that must not be more than this.
    pub(super) fn at_most(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        most: f64,
    ) {
        self.figures.push(Figure { what: what.into(), value, unit, at_most: Some(most) });
    }

    /// Something that must not be at all: how many there were, and the first of them.
    pub(super) fn never<T: fmt::Display>(&mut self, what: impl Into<String>, found: &[T]) {
        const SHOWN: usize = 8;
        let what = what.into();
        self.details.extend(found.iter().take(SHOWN).map(|one| format!("{what}: {one}")));
        self.at_most(what, found.len() as f64, "", 0.0);
    }

    pub(super) fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    pub(crate) fn violations(&self) -> usize {
        self.figures.iter().filter(|figure| figure.is_violated()).count()
    }

    pub(crate) fn logs(&self) -> std::path::Display<'_> {
        self.logs.display()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.figures.iter().map(|figure| figure.what.len()).max().unwrap_or_default();
        writeln!(f, "\n{} (seed {})", self.attack, self.seed)?;
        for figure in &self.figures {
            let value = number(figure.value);
            let verdict = match figure.at_most {
                Some(most) if figure.is_violated() => format!("at most {most}: VIOLATED"),
                Some(most) => format!("at most {most}: ok"),
                None => String::new(),
            };
            let line =
                format!("  {:width$}  {value:>9} {:<4}  {verdict}", figure.what, figure.unit);
            writeln!(f, "{}", line.trim_end())?;
        }
        for table in &self.tables {
            write!(f, "{table}")?;
        }
        for detail in &self.details {
            writeln!(f, "  ! {detail}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        writeln!(f, "\n  {}", self.title)?;
        write!(f, "  {:name$}", "")?;
        for column in &self.columns {
            write!(f, "  {column:>8}")?;
        }
        writeln!(f)?;
        for (row, values) in &self.rows {
            write!(f, "  {row:name$}")?;
            for value in values {
                write!(f, "  {:>8}", number(*value))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_thing() {
        let mut report = Report::new("soak", 1, Path::new("logs"));
        report.table(Table {
            title: "kerf-a".to_owned(),
            columns: vec!["seconds", "list"],
            rows: vec![
                ("draining".to_owned(), vec![60.25, 3.0]),
                ("all".to_owned(), vec![61.0, 4.0]),
            ],
        });
        let lines = "  kerf-a\n             seconds      list\n  draining      60.2         3\n  all             61         4\n";
        assert!(report.to_string().contains(lines), "{report}");
    }

    #[test]
    fn counts_what_is_out_of_bounds_and_shows_it() {
        let mut report = Report::new("kills", 1, Path::new("logs"));
        report.figure("kills", 60.0, "");
        report.at_most("seconds blind", 12.5, "s", 30.0);
        report.never("claims with two instances", &["default-a", "default-b"]);
        report.never::<String>("nodes without a claim", &[]);
        assert_eq!(report.violations(), 1);
        let shown = report.to_string();
        for line in [
            "kills                             60\n",
            "seconds blind                   12.5 s     at most 30: ok\n",
            "claims with two instances          2       at most 0: VIOLATED\n",
            "! claims with two instances: default-a",
        ] {
            assert!(shown.contains(line), "{line:?} in\n{shown}");
        }
    }
}
