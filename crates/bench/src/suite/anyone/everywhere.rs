//! Twelve services of Debian, each confined outside of containers by number and by a schemata, and in a container by
//! its identifier and by the hook that the runtime calls. Same answers, same end, all pages inside.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Args;

use super::services::{MORE_SERVICES, Place, SERVICES, Service};
use super::{CELLS_AND_INSIDE, Cell, Matrix, figures, note};
use crate::harness::{Bench, Suite, SuiteFigures, wanted};
use crate::verdict::SuiteVerdict;

/// How a service is confined.
const PLACES: [&str; 4] = ["pid", "schemata", "container", "hook"];
const CONTAIN: &str = include_str!("../../../programs/services/contain.sh");
/// Containers and other kinds at the end of the matrix are no services.
const PLAIN_SERVICES: usize = 4;

/// What to do.
#[derive(Args, Clone, Debug)]
pub struct Everywhere {
    /// Only this service; may be repeated
    #[arg(long)]
    pub only: Vec<String>,
    /// Only this way: pid, schemata, container or hook; may be repeated
    #[arg(long)]
    pub way: Vec<String>,
}

impl Suite for Everywhere {
    const FIGURES: SuiteFigures = &[("P29", CELLS_AND_INSIDE)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let matrix = Matrix { huepage: bench.huepage, with: &bench.declared() };
        let all = SERVICES[..PLAIN_SERVICES].iter().chain(&MORE_SERVICES);
        for service in all.filter(|service| wanted(&self.only, service.name)) {
            matrix.everywhere(verdict, service, self)?;
        }
        let whole = self.only.is_empty() && self.way.is_empty();
        // None of these may be refused.
        figures(verdict, "P29", whole, |row| row["refused"].is_null());
        Ok(())
    }
}

/// An identifier of a container.
fn identifier() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let (own, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    format!("{own:032x}{number:032x}")
}

/// Half of the ways of the L2, as a schemata of resctrl.
fn half() -> io::Result<String> {
    let ways =
        fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/ways_of_associativity")?;
    let ways: u32 = ways.trim().parse().map_err(io::Error::other)?;
    Ok(format!("L2:0={:x}", (1_u64 << (ways / 2).clamp(1, 63)) - 1))
}

impl Matrix<'_> {
    fn everywhere(
        &self,
        verdict: &mut SuiteVerdict,
        service: &Service,
        setting: &Everywhere,
    ) -> io::Result<()> {
        let Some(outside) = self.native_service(service)? else {
            verdict.skip(format!(
                "{} is not installed; run scripts/setup-programs.sh --services",
                service.name
            ));
            return Ok(());
        };
        let inside = |place: &Place| self.contain(place, &identifier(), "");
        let Some(inside) = self.native_below(service, inside)? else { return Ok(()) };
        for way in PLACES.into_iter().filter(|way| wanted(&setting.way, way)) {
            let native = if ["container", "hook"].contains(&way) { &inside } else { &outside };
            let cell = self.somewhere(service, way, native);
            note(verdict, service.name, way, cell.unwrap_or_else(Cell::failed));
        }
        Ok(())
    }

    /// One cell.
    fn somewhere(&self, service: &Service, way: &str, native: &(String, i32)) -> io::Result<Cell> {
        let (place, mut cell, half) = (Place::new(service)?, Cell::default(), half()?);
        place.call("prepare", 0)?;
        let id = identifier();
        let (before, container, share) = match way {
            "pid" => (Vec::new(), None, Some("50%")),
            "schemata" => (Vec::new(), None, Some(&*half)),
            "container" => (self.contain(&place, &id, "")?, Some(&*id), Some(&*half)),
            _ => (self.contain(&place, &id, &half)?, Some(&*id), None),
        };
        let mut leader = place.start(&before)?;
        let status = self.attached(&place, &mut leader, container, share, &mut cell)?;
        cell.troubles.extend(place.differs(status, native));
        Ok(cell)
    }

    /// The words that start what follows them in a container; a hook confines it where there is a share.
    fn contain(&self, place: &Place, id: &str, share: &str) -> io::Result<Vec<String>> {
        let script = place.path("contain.sh");
        fs::write(&script, CONTAIN)?;
        let huepage = self.huepage.path.display().to_string();
        let script = script.display().to_string();
        Ok(["bash", &script, id, share, &huepage].map(str::to_owned).to_vec())
    }
}
