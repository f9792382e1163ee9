//! The figures of a process that `huepage top` has: each is defined once, with its name in JSON, its unit and
//! description, and is a column of the screen and of `--once`, something to sort by, and a line of the help.

use huepage_policy::residency::Estimate;

use super::snapshot::ProcessNow;
use super::text;
use crate::figures::{Figure, FigureKind, FigureUnit};

/// A column.
#[derive(Debug)]
pub struct TopColumn {
    /// What it shows.
    pub figure: Figure<ProcessNow>,
    /// The key that sorts by it.
    pub key: char,
    /// What it is called where there is room.
    pub title: &'static str,
    /// Above it on the screen.
    pub heading: &'static str,
    /// Its characters on the screen.
    pub width: usize,
    /// Whether small comes first; what is remarkable does.
    pub ascending: bool,
}

/// All of them, in the order of the screen.
pub static COLUMNS: [TopColumn; 5] = [
    TopColumn {
        figure: gauge(
            "compliance.share",
            FigureUnit::Share,
            "Movable pages inside the partition, after the last audit.",
            |process| Some(process.compliance?.share),
        ),
        key: 'c',
        title: "compliance",
        heading: "COMPL",
        width: 7,
        ascending: true,
    },
    TopColumn {
        figure: gauge(
            "residency.estimate.miss_rate",
            FigureUnit::Share,
            "Of 100 requests to the L2, estimated; - where only L2+L3 is seen.",
            |process| Some(estimate(process)?.miss_rate),
        ),
        key: 'm',
        title: "miss rate",
        heading: "MISSES",
        width: 11,
        ascending: false,
    },
    TopColumn {
        figure: gauge(
            "residency.cached_bytes",
            FigureUnit::Bytes,
            "Memory of it in the L2 (or L2+L3), as estimated.",
            |process| Some(process.residency.as_ref()?.cached_bytes),
        ),
        key: 'l',
        title: "cached",
        heading: "CACHED",
        width: 6,
        ascending: false,
    },
    TopColumn {
        figure: gauge(
            "recolored_per_second",
            FigureUnit::PerSecond,
            "Pages recoloured in a second.",
            |process| process.recolored_per_second,
        ),
        key: 'r',
        title: "recolouring",
        heading: "RECOL/S",
        width: 7,
        ascending: false,
    },
    TopColumn {
        figure: gauge(
            "resident_bytes",
            FigureUnit::Bytes,
            "Memory that it has resident.",
            |process| Some(process.resident_bytes as f64),
        ),
        key: 's',
        title: "size",
        heading: "SIZE",
        width: 6,
        ascending: false,
    },
];

const fn gauge(
    name: &'static str,
    unit: FigureUnit,
    help: &'static str,
    value: fn(&ProcessNow) -> Option<f64>,
) -> Figure<ProcessNow> {
    Figure { name, metric: None, kind: FigureKind::Gauge, unit, help, value }
}

/// How often a process misses, if that can be told.
fn estimate(process: &ProcessNow) -> Option<Estimate> {
    process.residency.as_ref()?.estimate
}

impl TopColumn {
    /// Its cell of a process; an estimate has its margin.
    pub fn text(&self, process: &ProcessNow) -> String {
        if self.key == 'm' {
            return text::misses(estimate(process));
        }
        let value = (self.figure.value)(process);
        value.map_or_else(|| text::UNKNOWN.to_owned(), |value| self.figure.unit.text(value))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::canned;
    use super::*;

    #[test]
    fn json_has_each_figure_by_its_name() {
        let mut moment = canned(1);
        moment.processes[0].recolored_per_second = Some(300.0);
        for process in &moment.processes {
            let json = serde_json::to_value(process).unwrap();
            for TopColumn { figure, .. } in &COLUMNS {
                let path = format!("/{}", figure.name.replace('.', "/"));
                let found = json.pointer(&path).and_then(serde_json::Value::as_f64);
                assert_eq!(found, (figure.value)(process), "{path}");
            }
        }
    }

    #[test]
    fn keys_differ_and_cells_fit_their_columns() {
        let keys: std::collections::BTreeSet<char> = COLUMNS.iter().map(|c| c.key).collect();
        assert_eq!(keys.len(), COLUMNS.len());
        for column in &COLUMNS {
            assert!(column.heading.len() <= column.width && column.figure.help.ends_with('.'));
            let fits = |process: &ProcessNow| column.text(process).chars().count() <= column.width;
            assert!(canned(1).processes.iter().all(fits), "{}", column.heading);
        }
    }
}
