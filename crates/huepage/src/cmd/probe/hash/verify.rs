//! `--verify`: a hash that somebody gives, held against observations.

use std::fmt::Write as _;

use huepage_color::IndexFunction;
use huepage_recover::verify::{HashAgreement, HashVerdict};
use huepage_recover::{
    HashFile, HashOutcome, Observations, RecoverOptions, Recovery, bound, notation, verify,
    verify_masks,
};
use serde_json::json;

use super::report;
use crate::cmd::probe::args::HashArgs;
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;

/// What holding a hash against observations gave.
struct Held<'a> {
    hash: &'a HashFile,
    source: &'a str,
    agreement: HashAgreement,
    /// What the observations give by themselves, if the hash is one of parities.
    recovery: Option<Recovery>,
    /// Bits of its masks that no observation varied.
    unseen: u64,
}

/// Says whether the hash agrees with what was seen, and exits by that.
pub fn run(
    hash: &HashFile,
    seen: &Observations,
    source: &str,
    args: &HashArgs,
) -> Result<u8, CmdError> {
    let held = hold(hash, seen, source, args)?;
    let text = if args.json { held.json() } else { held.text() };
    crate::style::print(&text).map_err(internal)?;
    match held.agreement.verdict {
        HashVerdict::Agrees => Ok(0),
        HashVerdict::Disagrees => {
            let what =
                format!("the observations contradict {}; recover the hash instead", hash.name);
            Err(CmdError::new(ExitCode::Contradicted, what))
        }
        HashVerdict::Unclear => {
            let what = "the observations neither confirm nor contradict the hash; observe more";
            Err(CmdError::new(ExitCode::Noisy, what))
        }
    }
}

fn hold<'a>(
    hash: &'a HashFile,
    seen: &Observations,
    source: &'a str,
    args: &HashArgs,
) -> Result<Held<'a>, CmdError> {
    let index = hash.index(0).map_err(|e| CmdError::new(ExitCode::BadFile, e))?;
    let options = RecoverOptions { seed: args.seed, ..RecoverOptions::default() };
    let (agreement, recovery) = match &index {
        IndexFunction::Xor { slice_masks, .. } => {
            let (agreement, recovery) = verify_masks(seen, slice_masks, &options);
            (agreement, Some(recovery))
        }
        _ => (verify(seen, index.slices() as usize, verify::slices(&index)), None),
    };
    let masks = hash.slice_masks.iter().chain(&hash.permutation);
    let unseen = masks.fold(0, |all, mask| all | mask.0) & !seen.varied();
    Ok(Held { hash, source, agreement, recovery, unseen })
}

const fn word(verdict: HashVerdict) -> &'static str {
    match verdict {
        HashVerdict::Agrees => "agrees",
        HashVerdict::Disagrees => "disagrees",
        HashVerdict::Unclear => "unclear",
    }
}

impl Held<'_> {
    fn text(&self) -> String {
        let (hash, found) = (self.hash, &self.agreement);
        let mut out = format!(
            "observed: {}\n{}: {}, says {}\n{}: {} of {} observations agree; at most {:.0} % would\n\
             by chance, so many with probability {}\n",
            self.source,
            word(found.verdict),
            hash.name,
            hash.source,
            if found.verdict == HashVerdict::Agrees { "verified" } else { "not verified" },
            found.agree,
            found.seen,
            found.chance * 100.0,
            probability(found.ln_chance),
        );
        if let Some(masks) = self.others() {
            let masks = notation::masks(masks);
            let _ = writeln!(out, "recovered: {masks}, which say something else");
        }
        if self.unseen != 0 {
            let bits = notation::bits(self.unseen);
            let _ = writeln!(out, "not seen: bits {bits}: they never varied, and may be wrong");
        }
        out + &self.recovery.as_ref().map_or_else(String::new, report::open)
    }

    /// The masks that were recovered, if they say something else.
    fn others(&self) -> Option<&[u64]> {
        let recovery = self.recovery.as_ref()?;
        match &recovery.outcome {
            HashOutcome::Linear(found) if recovery.confirms(&self.hash.masks()) == Some(false) => {
                Some(&found.masks)
            }
            _ => None,
        }
    }

    fn json(&self) -> String {
        let found = &self.agreement;
        let value = json!({
            "source": self.source,
            "hash": self.hash.name,
            "verdict": word(found.verdict),
            "observations": found.seen,
            "agree": found.agree,
            "chance": found.chance,
            "confidence": bound::words(found.ln_chance),
            "log10_chance": found.ln_chance / std::f64::consts::LN_10,
            "recovered_instead": self.others().map(report::hex),
            "not_seen": format!("{:#x}", self.unseen),
        });
        format!("{value:#}\n")
    }
}

fn probability(ln: f64) -> String {
    match ln {
        0.0 => "up to 1".to_owned(),
        ln => format!("10^{:.0}", (ln / std::f64::consts::LN_10).ceil()),
    }
}
