//! The arguments of `huepage group` and the help that explains them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

const EXAMPLES: &str = "\
Examples:
  huepage group create web --share 25%             a quarter of the L2, empty
  huepage group add web 4711 4712                  two running processes
  huepage group create db --share 50% --cgroup system.slice/postgresql.service
  huepage group create others --colors rest        what no other partition holds
  huepage group list
  huepage group show web --json | jq '.members[].compliance'
  huepage group delete web                         its processes run on
  huepage group apply groups.toml                  create what the file names

A file for `apply` has a table for each group:
  [[group]]
  name = \"db\"
  share = \"50%\"            # or colors = \"0-7\"
  cgroup = \"system.slice/postgresql.service\"
  # also: overlap, and options of `create`: level, colors_from, superpages …

Groups are kept in /var/lib/huepage/groups (HUEPAGE_STATE_DIR). When a group's supervisor has ended, \
`huepage group start NAME` takes those of its processes that still run into the same colours again.";

/// Partitions with names, for processes that come and go
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct GroupArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: GroupCommand,
}

/// What can be done with groups.
#[derive(Subcommand, Debug)]
pub enum GroupCommand {
    /// Make a group, without processes or for those of a control group
    Create(Box<CreateArgs>),
    /// Take processes that run already into a group
    Add(AddArgs),
    /// Show all groups
    List(ListArgs),
    /// Show a group and where the pages of its processes are
    Show(ShowArgs),
    /// Release the processes of a group and forget it
    Delete(NameArgs),
    /// Start the supervisor of a group again
    Start(NameArgs),
    /// Create the groups of a file; those that are there already stay
    Apply(ApplyArgs),
    /// Be the supervisor of a group
    #[command(hide = true)]
    Serve(NameArgs),
}

/// What a group is.
#[derive(Args, Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    #[command(flatten)]
    #[serde(flatten)]
    pub plan: Plan,

    /// Share colours with other partitions where they hold them too
    #[arg(long)]
    pub overlap: bool,

    /// Take the processes of this control group and of those below it, also later ones
    ///
    /// A directory, or a name below /sys/fs/cgroup (version 2) or one of its hierarchies (version
    /// 1). New processes are taken within a fifth of a second of their start.
    #[arg(long, value_name = "CGROUP")]
    pub cgroup: Option<String>,

    /// The colours that a share came to be, once the group was started.
    #[arg(skip)]
    pub held: Option<String>,
}

/// `group create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Its name: letters, digits, dots, dashes, underscores
    #[arg(value_name = "NAME")]
    pub name: String,

    #[command(flatten)]
    pub definition: Definition,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// `group add`.
#[derive(Args, Debug)]
pub struct AddArgs {
    /// The group
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The processes
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x40_0000))]
    pub pids: Vec<u32>,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// `group list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `group show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The group
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A command that needs a name alone.
#[derive(Args, Debug)]
pub struct NameArgs {
    /// The group
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// `group apply`.
#[derive(Args, Debug)]
pub struct ApplyArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}
