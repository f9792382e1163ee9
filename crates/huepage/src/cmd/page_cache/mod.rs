//! `--page-cache`: the files of a program are placed before it reads them. `args` has the options,
//! `service` is the process that lets others open files, `supervisor` starts and watches it,
//! `native` runs a program of which nothing but the files is placed, `protocol` and `report` are
//! what is said. The mechanism is in `huepage_linux::filecache`.

pub mod args;
pub mod native;
mod protocol;
pub mod report;
pub mod service;
pub mod supervisor;

use huepage_color::Provenance;

use crate::args::{ColorsFrom, PartitionArgs};
use crate::partition::Plan;

/// The hidden command that is the service.
pub const SERVICE: &str = "page-cache-service";

/// The options of a partition with everything decided that `plan` has decided.
pub fn decided(args: &PartitionArgs, plan: &Plan) -> PartitionArgs {
    let found = || match plan.provenance {
        Provenance::Probed => ColorsFrom::Probe,
        _ => ColorsFrom::Pfn,
    };
    PartitionArgs {
        colors: Some(plan.config.colors.to_string()),
        share: None,
        colors_from: Some(args.colors_from.clone().unwrap_or_else(found)),
        ..args.clone()
    }
}
