//! Which sources of TLB misses this machine has, opened once for all processes.

use std::cell::RefCell;
use std::rc::Rc;

use super::accessed::AccessedBits;
use super::events::PmuSource;
use super::fallbacks::{Areas, PageOut, Pmu};
use super::pageout::PageOutSampler;
use super::sensor::{MissSensor, MissSensorKind, SensorError};
use crate::kernel::page_tables::PageTables;
use crate::kernel::procfs::ProcRoot;

/// What this machine can look with, opened once for all processes.
pub enum SensorSet {
    /// Samples of misses.
    Pmu,
    /// Page tables, and why there is nothing better.
    Tables(Rc<RefCell<PageTables>>, String),
    /// Areas, and why there is nothing better.
    Areas(String),
    /// Pages that come back.
    PageOut,
    /// Nothing, with the reason.
    None(String),
}

impl SensorSet {
    /// The best there is, or the source that is asked for; none where none is needed.
    pub fn open(needed: bool, asked: Option<MissSensorKind>) -> SensorSet {
        if !needed {
            return SensorSet::None(String::new());
        }
        let tables = |why: String| match PageTables::open() {
            Ok(tables) => Ok(SensorSet::Tables(Rc::new(RefCell::new(tables)), why)),
            Err(error) => Err(error.to_string()),
        };
        let found = match asked {
            Some(MissSensorKind::Pmu) => pmu(),
            Some(MissSensorKind::AccessedBits) => tables(String::new()),
            Some(MissSensorKind::Areas) => Ok(SensorSet::Areas(String::new())),
            Some(MissSensorKind::PageOut) => page_out(),
            Some(MissSensorKind::None) => Err(String::new()),
            None => pmu()
                .or_else(|why| tables(cause(&why)))
                .or_else(|why| Ok(SensorSet::Areas(cause(&why)))),
        };
        found.unwrap_or_else(SensorSet::None)
    }

    /// Which it is.
    pub fn source(&self) -> MissSensorKind {
        match self {
            SensorSet::Pmu => MissSensorKind::Pmu,
            SensorSet::Tables(..) => MissSensorKind::AccessedBits,
            SensorSet::Areas(_) => MissSensorKind::Areas,
            SensorSet::PageOut => MissSensorKind::PageOut,
            SensorSet::None(_) => MissSensorKind::None,
        }
    }

    /// Why there is no better one; empty if there is none better or it was asked for.
    pub fn because(&self) -> String {
        match self {
            SensorSet::None(why) | SensorSet::Areas(why) | SensorSet::Tables(_, why) => why.clone(),
            SensorSet::Pmu | SensorSet::PageOut => String::new(),
        }
    }

    /// For one process.
    ///
    /// # Errors
    /// When it has ended or cannot be looked at.
    pub fn sensor(&self, pid: i32) -> Result<Option<Box<dyn MissSensor>>, SensorError> {
        Ok(match self {
            SensorSet::Pmu => Some(Box::new(Pmu::open(pid)?)),
            SensorSet::Tables(tables, _) => Some(Box::new(AccessedBits::open(tables, pid)?)),
            SensorSet::Areas(_) => Some(Box::new(Areas::open(pid))),
            SensorSet::PageOut => Some(Box::new(PageOut::open(pid)?)),
            SensorSet::None(_) => None,
        })
    }
}

/// What is wrong, of a message that also says what to do: something else is used already.
fn cause(message: &str) -> String {
    message.split_once("; ").map_or(message, |(cause, _)| cause).to_owned()
}

fn pmu() -> Result<SensorSet, String> {
    PmuSource::supported().map(|_| SensorSet::Pmu).map_err(|error| error.to_string())
}

fn page_out() -> Result<SensorSet, String> {
    let found = PageOutSampler::is_supported(&ProcRoot::default());
    found.map(|()| SensorSet::PageOut).map_err(|error| error.to_string())
}

/// Why misses cannot come from a source here; `None` if they can.
pub fn lacking(source: MissSensorKind) -> Option<String> {
    let sensors = SensorSet::open(true, Some(source));
    (sensors.source() != source).then(|| sensors.because())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_in_its_place_needs_no_advice() {
        assert_eq!(cause("no PMU here; use accessed bits instead"), "no PMU here");
        assert_eq!(cause("no PMU here"), "no PMU here");
        let because = SensorSet::open(true, None).because();
        assert!(!because.contains(';'), "{because}");
    }
}
