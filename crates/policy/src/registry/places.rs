//! Where policies run: in the simulator all, in replay and on running programs those whose needs a recording or a
//! sensor serves. What a policy needs to hear of ([`InputKind`]) decides that, here and nowhere else.

use super::table::{Family, POLICIES, PolicyEntry};
use super::{Error, Settings};
use crate::input::InputKind;

/// log2 of the base pages of the only superpages that Linux builds of pages in use on request: 2 MiB.
pub const ORDER_ON_REQUEST: u32 = 9;

/// An option by which a policy runs on programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveOption {
    /// `--colors` and `--share`.
    Colors,
    /// `--pollute-buffer`.
    PolluteBuffer,
    /// `--recolor-conflicts`.
    RecolorConflicts,
    /// `--page-cache`.
    PageCache,
    /// `--superpages`.
    Superpages,
    /// Groups of the daemon that ask for a miss rate or a metric.
    Daemon,
}

impl LiveOption {
    /// As it is asked for.
    pub const fn text(self) -> &'static str {
        match self {
            LiveOption::Colors => "--colors, --share",
            LiveOption::PolluteBuffer => "--pollute-buffer",
            LiveOption::RecolorConflicts => "--recolor-conflicts",
            LiveOption::PageCache => "--page-cache",
            LiveOption::Superpages => "--superpages",
            LiveOption::Daemon => "daemon",
        }
    }

    /// That of policies of a family; none if no option does what they do.
    const fn of(family: Family) -> Option<LiveOption> {
        match family {
            Family::Partition => Some(LiveOption::Colors),
            Family::Pollute => Some(LiveOption::PolluteBuffer),
            Family::Files => Some(LiveOption::PageCache),
            Family::Division => Some(LiveOption::Daemon),
            Family::ActiveConflicts
            | Family::PeriodicConflicts
            | Family::Snapshots
            | Family::Cml => Some(LiveOption::RecolorConflicts),
            Family::Superpages => Some(LiveOption::Superpages),
            Family::Nothing | Family::Combined => None,
        }
    }

    /// The names that it takes, in the order of the table.
    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        let taken = move |entry: &&PolicyEntry| live(entry) == Ok(self);
        POLICIES.iter().filter(taken).map(|entry| entry.name)
    }

    /// Reads a policy for this option.
    ///
    /// # Errors
    /// As [`Settings::parse`], and for a policy that does something else, or that running programs cannot be
    /// told enough for. All but mistakes in keys list the names that this option takes.
    pub fn parse(self, text: &str) -> Result<Settings, Error> {
        let settings = Settings::parse(text).map_err(|error| match error {
            Error::Unknown { name, .. } => {
                Error::Unknown { hint: super::hint(&name, self.names()), name }
            }
            error => error,
        })?;
        let choose = || format!("choose {}", self.names().collect::<Vec<_>>().join(", "));
        let (why, hint) = match live(settings.entry()) {
            Ok(option) if option == self => match settings.lacks_size() {
                None => return Ok(settings),
                Some(why) => (why, format!("write order={ORDER_ON_REQUEST}")),
            },
            Ok(option) => (format!("is for {}", option.text()), choose()),
            Err(why) => (why, choose()),
        };
        Err(Error::NotHere { policy: settings.name(), why, hint })
    }
}

/// By which option a policy runs on programs.
///
/// # Errors
/// Why it does not: what it needs that no running program tells, in a few words.
pub fn live(entry: &PolicyEntry) -> Result<LiveOption, String> {
    if let Some(input) = entry.needs.iter().find(|input| !input.is_live()) {
        return Err(format!("needs {}", input.lack()));
    }
    if entry.name == "asap-4-64" {
        return Err(only_on_request(4));
    }
    LiveOption::of(entry.family).ok_or_else(|| "needs no option".to_owned())
}

/// Of which recordings a policy is replayed.
///
/// # Errors
/// Why it is not, in a few words.
pub fn replay(entry: &PolicyEntry) -> Result<&'static str, String> {
    if let Some(input) = entry.needs.iter().find(|input| !input.is_recorded()) {
        return Err(format!("needs {}", input.lack()));
    }
    let misses = entry.needs.contains(&InputKind::TlbMisses);
    match entry.family {
        Family::Nothing => Ok("any"),
        Family::Pollute => Ok("residency, loads"),
        Family::Division => Ok("residency, several files"),
        Family::ActiveConflicts | Family::PeriodicConflicts | Family::Snapshots => {
            Ok("residency --in-use")
        }
        Family::Superpages if entry.name == "asap-4-64" => Err(only_on_request(4)),
        Family::Superpages if misses => Ok("accessed-bits, TLB misses"),
        Family::Superpages => Ok("accessed-bits, page faults"),
        Family::Partition | Family::Files | Family::Cml | Family::Combined => {
            Err("no recording tells enough".to_owned())
        }
    }
}

fn only_on_request(order: u32) -> String {
    let kib = 4_u64 << order;
    format!("needs pages of {kib} KiB built of pages in use, and Linux builds only 2 MiB of them")
}

impl Settings {
    /// Why running programs cannot have the superpages that it builds; none if they can.
    pub fn lacks_size(&self) -> Option<String> {
        self.reserved().filter(|order| *order != ORDER_ON_REQUEST).map(only_on_request)
    }
}

impl InputKind {
    /// Whether sensors of stock Linux tell it of running programs, without a PMU.
    const fn is_live(self) -> bool {
        !matches!(self, InputKind::Stream | InputKind::CmlBuffer)
    }

    /// Whether a recording has it.
    const fn is_recorded(self) -> bool {
        self.is_live()
            && !matches!(self, InputKind::FileMisses | InputKind::FileUses | InputKind::Stock)
    }

    /// What is needed and why it is not there.
    const fn lack(self) -> &'static str {
        match self {
            InputKind::Stream => "the stream of accesses beforehand, which only the simulator has",
            InputKind::CmlBuffer => "a cache miss look-aside buffer, which no processor has",
            InputKind::FileMisses | InputKind::FileUses | InputKind::Stock => {
                "the page cache's hits and misses, which no sensor records"
            }
            _ => "what no sensor tells",
        }
    }
}
