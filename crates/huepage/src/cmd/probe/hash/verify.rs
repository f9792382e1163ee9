//! `--verify`: a hash that somebody gives, held against observations.

use huepage_color::IndexFunction;
use huepage_recover::verify::{Agreement, Verdict};
use huepage_recover::{HashFile, Observations, bound, verify};
use serde_json::json;

use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;

/// Says whether the hash agrees with what was seen, and exits by that.
pub fn run(
    hash: &HashFile,
    seen: &Observations,
    source: &str,
    as_json: bool,
) -> Result<u8, CmdError> {
    let index = hash.index(0).map_err(|e| CmdError::new(ExitCode::BadFile, e))?;
    let found = match &index {
        IndexFunction::Xor { slice_masks, .. } => {
            verify(seen, 1 << slice_masks.len(), verify::parities(slice_masks))
        }
        _ => verify(seen, index.slices() as usize, verify::slices(&index)),
    };
    let text = if as_json { json(hash, source, &found) } else { text(hash, source, &found) };
    crate::style::print(&text).map_err(internal)?;
    match found.verdict {
        Verdict::Agrees => Ok(0),
        Verdict::Disagrees => {
            let what =
                format!("the observations contradict {}; recover the hash instead", hash.name);
            Err(CmdError::new(ExitCode::Contradicted, what))
        }
        Verdict::Unclear => {
            let what = "the observations neither confirm nor contradict the hash; observe more";
            Err(CmdError::new(ExitCode::Noisy, what))
        }
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "agrees",
        Verdict::Disagrees => "disagrees",
        Verdict::Unclear => "unclear",
    }
}

fn text(hash: &HashFile, source: &str, found: &Agreement) -> String {
    format!(
        "observed: {source}\n{}: {}, says {}\n{}: {} of {} observations agree; at most {:.0} % would\n\
         by chance, so many with probability {}\n",
        word(found.verdict),
        hash.name,
        hash.source,
        if found.verdict == Verdict::Agrees { "verified" } else { "not verified" },
        found.agree,
        found.seen,
        found.chance * 100.0,
        probability(found.ln_chance),
    )
}

fn probability(ln: f64) -> String {
    match ln {
        0.0 => "up to 1".to_owned(),
        ln => format!("10^{:.0}", (ln / std::f64::consts::LN_10).ceil()),
    }
}

fn json(hash: &HashFile, source: &str, found: &Agreement) -> String {
    let value = json!({
        "source": source,
        "hash": hash.name,
        "verdict": word(found.verdict),
        "observations": found.seen,
        "agree": found.agree,
        "chance": found.chance,
        "confidence": bound::words(found.ln_chance),
        "log10_chance": found.ln_chance / std::f64::consts::LN_10,
    });
    format!("{value:#}\n")
}
