//! What was found, as text, as JSON and as a hash file.

use std::fmt::Write as _;

use huepage_color::{IndexFunction, gf2};
use huepage_recover::file::Mask;
use huepage_recover::{
    Clusters, ConfigureError, Configured, HashEvidence, HashFile, Linear, NotLinear, Permuted,
    Recovery, bound, known, notation,
};
use serde_json::{Value, json};

use super::solve::{HashFinding, Solved};
use crate::report::SCHEMA;
use crate::style::{self, Style};

/// Findings of one run.
pub struct Report {
    source: String,
    hidden: Option<IndexFunction>,
    solved: Vec<Solved>,
}

impl Report {
    pub const fn new(source: String, hidden: Option<IndexFunction>) -> Report {
        Report { source, hidden, solved: Vec::new() }
    }

    pub fn add(&mut self, solved: Solved) {
        self.solved.push(solved);
    }

    /// Why nothing can be claimed, if no method found anything.
    pub fn failure(&self) -> Option<String> {
        let all: Option<Vec<String>> = self.solved.iter().map(Solved::failure).collect();
        all.and_then(|why| why.into_iter().next())
    }

    /// Why there is no file to write, as the first method says.
    pub fn unwritten(&self) -> String {
        self.solved.first().map_or_else(String::new, Solved::unwritten)
    }

    /// For a person.
    pub fn text(&self) -> String {
        let mut out = format!("observed: {}\n", self.source);
        for solved in &self.solved {
            let [observing, solving] = solved.seconds;
            let _ = writeln!(out, "\n{}", Style::stdout().bold(heading(solved.method)));
            out += &self.finding(solved);
            let _ = writeln!(
                out,
                "took: {solving:.3} s to solve, {observing:.2} s to observe {} lines",
                solved.observations
            );
        }
        if self.solved.len() > 1 {
            let _ = write!(out, "\n{}", self.table());
        }
        out
    }

    fn finding(&self, solved: &Solved) -> String {
        match &solved.finding {
            HashFinding::Linear(recovery, found) => self.linear(solved, recovery, found),
            HashFinding::NotLinear(recovery, found, permuted) => {
                not_linear(recovery, found, permuted.as_ref())
            }
            HashFinding::Clusters(found, configured) => self.clusters(found, configured),
            HashFinding::Undetermined(recovery, why) => {
                format!("nothing is claimed: {why}\n{}", unseen(recovery))
            }
            HashFinding::NoClusters(why) => format!("nothing is claimed: {why}\n"),
        }
    }

    fn linear(&self, solved: &Solved, recovery: &Recovery, found: &Linear) -> String {
        let mut out = self.masks(&found.masks, recovery.varied);
        let (all, right) = found.held;
        let _ = writeln!(
            out,
            "confidence: {}; {right} of {all} observations held out agree ({:.1} % wrong)",
            bound::words(found.ln_doubt),
            found.wrong * 100.0
        );
        if found.labelled {
            let _ = writeln!(
                out,
                "labels: mask i gives bit i of the slice's own number{}",
                match found.offset {
                    0 => String::new(),
                    offset => format!(", XORed with {offset:#x}"),
                }
            );
        } else {
            out += "open: which slice has which number; any masks of the same span say the same\n";
        }
        if let Some(bits) = solved.set_bits {
            let _ = writeln!(
                out,
                "open: address bits 6-{}, which choose the set: whether the hash has them too\n      \
                 cannot be seen by evictions, and makes no difference to who competes",
                5 + bits
            );
        }
        out + &unseen(recovery)
    }

    fn masks(&self, masks: &[u64], varied: u64) -> String {
        let slices = 1_u64 << masks.len();
        let mut out = format!("masks: {} ({slices} slices)\n", notation::masks(masks));
        for (mask, bit) in masks.iter().zip(0..) {
            let _ = writeln!(out, "  slice bit {bit}: address bits {}", notation::bits(*mask));
        }
        let like = known::like(masks, varied);
        if !like.is_empty() {
            let _ = writeln!(out, "published as: {}", like.join(", "));
        }
        if let Some(same) = self.same(masks, varied) {
            let word = if same { "the same" } else { "ANOTHER; please report this as a bug" };
            let _ = writeln!(out, "hidden hash: {word}");
        }
        out
    }

    /// Whether masks are the hidden ones, as far as bits varied.
    fn same(&self, masks: &[u64], varied: u64) -> Option<bool> {
        match self.hidden.as_ref()? {
            IndexFunction::Xor { slice_masks, .. } => {
                let cut = |masks: &[u64]| {
                    gf2::reduce(&masks.iter().map(|m| m & varied).collect::<Vec<_>>())
                };
                Some(cut(slice_masks) == cut(masks))
            }
            _ => Some(false),
        }
    }

    fn clusters(
        &self,
        found: &Clusters,
        configured: &Result<Configured, ConfigureError>,
    ) -> String {
        let mut out = String::new();
        for (cluster, number) in found.clusters.iter().zip(1..) {
            let mask = cluster.0.iter().fold(0, |mask, bit| mask | 1 << bit);
            let _ = writeln!(out, "  cluster {number}: address bits {}", notation::bits(mask));
        }
        let _ = writeln!(
            out,
            "clusters agree with {:.1} % of {} counts ({} dropped as noise)",
            found.agree * 100.0,
            found.counts.0,
            found.counts.1
        );
        match configured {
            Ok(chosen) => {
                let varied = found.clusters.iter().flat_map(|c| &c.0).chain(&found.unused);
                out += &self.masks(&chosen.masks, varied.fold(0, |all, bit| all | 1 << bit));
                let ((right, all), next) = (chosen.agree, chosen.next);
                let _ = writeln!(
                    out,
                    "configuration: right on {right} of {all} numbered lines, the next of {} on {next}",
                    chosen.tried
                );
            }
            Err(why) => _ = writeln!(out, "no configuration: {why}"),
        }
        out
    }

    fn table(&self) -> String {
        let mut table = Style::stdout().table(&[
            "method",
            "masks",
            "hidden hash",
            "lines",
            "solving",
            "confidence",
        ]);
        for solved in &self.solved {
            let (masks, same, sure) = self.row(solved);
            let time = format!("{:.1} ms", solved.seconds[1] * 1e3);
            table.add_row([
                solved.method,
                &masks,
                &same,
                &solved.observations.to_string(),
                &time,
                &sure,
            ]);
        }
        style::lay_out(table)
    }

    fn row(&self, solved: &Solved) -> (String, String, String) {
        let varied = match &solved.finding {
            HashFinding::Linear(recovery, _) => recovery.varied,
            HashFinding::Clusters(found, _) => {
                found.clusters.iter().flat_map(|c| &c.0).fold(0, |all, bit| all | 1 << bit)
            }
            _ => 0,
        };
        let sure = match &solved.finding {
            HashFinding::Linear(_, found) => bound::words(found.ln_doubt),
            HashFinding::Clusters(_, Ok(_)) => "none is defined".to_owned(),
            _ => "-".to_owned(),
        };
        let same = solved.masks().and_then(|masks| self.same(masks, varied));
        let same = same.map_or("-", |same| if same { "the same" } else { "another" });
        (solved.masks().map_or_else(|| "-".to_owned(), notation::masks), same.to_owned(), sure)
    }

    /// For programs.
    pub fn json(&self) -> String {
        let all: Vec<Value> = self.solved.iter().map(|solved| self.value(solved)).collect();
        format!("{:#}\n", json!({ "schema": SCHEMA, "source": self.source, "methods": all }))
    }

    fn value(&self, solved: &Solved) -> Value {
        let mut value = match &solved.finding {
            HashFinding::Linear(recovery, found) => self.linear_value(recovery, found),
            HashFinding::NotLinear(recovery, found, permuted) => {
                not_linear_value(recovery, found, permuted.as_ref())
            }
            HashFinding::Undetermined(recovery, why) => json!({
                "outcome": "undetermined", "why": why.to_string(), "groups": recovery.groups,
            }),
            HashFinding::NoClusters(why) => json!({
                "outcome": "undetermined", "why": why.to_string(),
            }),
            HashFinding::Clusters(found, configured) => clusters_value(found, configured),
        };
        value["method"] = solved.method.into();
        value["observations"] = solved.observations.into();
        value["observe_seconds"] = solved.seconds[0].into();
        value["solve_seconds"] = solved.seconds[1].into();
        value["set_bits"] = solved.set_bits.into();
        value
    }

    fn linear_value(&self, recovery: &Recovery, found: &Linear) -> Value {
        json!({
            "outcome": "linear",
            "masks": hex(&found.masks),
            "slices": 1_u64 << found.masks.len(),
            "labelled": found.labelled,
            "offset": found.offset,
            "confidence": 1.0 - found.ln_doubt.exp(),
            "log10_doubt": found.ln_doubt / std::f64::consts::LN_10,
            "wrong": found.wrong,
            "held_out": { "observations": found.held.0, "agree": found.held.1 },
            "published_as": known::like(&found.masks, recovery.varied),
            "hidden_is_same": self.same(&found.masks, recovery.varied),
            "varied": format!("{:#x}", recovery.varied),
            "ambiguous": hex(&recovery.blind),
            "trials": recovery.trials,
        })
    }

    /// The hash file of the first method that found a whole hash.
    pub fn file(&self) -> Option<HashFile> {
        self.solved.iter().find_map(|solved| match &solved.finding {
            HashFinding::Linear(recovery, found) => Some(self.linear_file(solved, recovery, found)),
            HashFinding::NotLinear(_, _, Some(found)) => self.permuted_file(solved, found),
            _ => None,
        })
    }

    fn linear_file(&self, solved: &Solved, recovery: &Recovery, found: &Linear) -> HashFile {
        HashFile {
            address_bits: [recovery.varied.trailing_zeros(), recovery.varied.ilog2()],
            slice_masks: found.masks.iter().copied().map(Mask).collect(),
            ambiguous: recovery.blind.iter().copied().map(Mask).collect(),
            ..self.blank(solved, found.wrong, found.ln_doubt)
        }
    }

    fn permuted_file(&self, solved: &Solved, found: &Permuted) -> Option<HashFile> {
        let Ok(IndexFunction::Permuted { base, permutation, .. }) = found.index(0) else {
            return None;
        };
        let (right, all) = found.agree;
        Some(HashFile {
            address_bits: [6, found.known.checked_ilog2()?],
            base,
            permutation: permutation.into_iter().map(Mask).collect(),
            ..self.blank(solved, 1.0 - crate::report::ratio(right, all), found.ln_doubt)
        })
    }

    fn blank(&self, solved: &Solved, wrong: f64, ln_doubt: f64) -> HashFile {
        HashFile {
            name: "recovered by huepage probe hash".into(),
            source: self.source.clone(),
            address_bits: [6, 6],
            line_bits: 6,
            set_bits: solved.set_bits,
            slice_masks: Vec::new(),
            base: Vec::new(),
            permutation: Vec::new(),
            ambiguous: Vec::new(),
            measured: Some(HashEvidence {
                observations: solved.observations as u64,
                wrong,
                log10_doubt: ln_doubt / std::f64::consts::LN_10,
            }),
        }
    }
}

fn heading(method: &str) -> &'static str {
    match method {
        "algebra" => "linear algebra over GF(2)",
        _ => "clusters by integer programming",
    }
}

/// Directions of which nothing is known.
fn unseen(recovery: &Recovery) -> String {
    let mut out = format!("seen: address bits {}", notation::bits(recovery.varied));
    out += "; of others nothing is known\n";
    out + &open(recovery)
}

/// Directions that varied, and too seldom.
pub fn open(recovery: &Recovery) -> String {
    let mut out = String::new();
    if !recovery.blind.is_empty() {
        let blind: Vec<String> = recovery.blind.iter().map(|m| notation::bits(*m)).collect();
        let _ = writeln!(
            out,
            "open: masks may have the bits {} added: too few observations vary them",
            blind.join(" or ")
        );
    }
    out
}

fn not_linear(recovery: &Recovery, found: &NotLinear, permuted: Option<&Permuted>) -> String {
    let mut out = format!("not linear: {} slices are no power of two\n", found.groups);
    if found.masks.is_empty() {
        out += "linear part: no parity of the address is constant over slices\n";
    } else {
        let _ = writeln!(out, "linear part: parities {}", notation::masks(&found.masks));
    }
    match permuted {
        Some(found) => out += &base(found),
        None => {
            out += "base sequence: not covered; it needs slices told by number, of rows of lines\n";
        }
    }
    out + &unseen(recovery)
}

fn base(found: &Permuted) -> String {
    let (right, all) = found.agree;
    let holes = found.base.iter().filter(|entry| entry.is_none()).count();
    let mut out = format!(
        "base sequence: {} lines, {} of them seen once only, {holes} never\n",
        found.base.len(),
        found.single
    );
    for (mask, bit) in found.permutation.iter().zip(0..) {
        let _ = writeln!(out, "  permutation bit {bit}: {mask:#x}");
    }
    let _ = writeln!(
        out,
        "permutation known for address bits {}; {right} of {all} other observations agree,\n\
         confidence {}",
        notation::bits(found.known),
        bound::words(found.ln_doubt)
    );
    out
}

fn not_linear_value(recovery: &Recovery, found: &NotLinear, base: Option<&Permuted>) -> Value {
    json!({
        "outcome": "not linear",
        "groups": found.groups,
        "linear_part": hex(&found.masks),
        "varied": format!("{:#x}", recovery.varied),
        "base": base.map(|b| b.base.iter().map(|g| g.map(|g| g.0)).collect::<Vec<_>>()),
        "permutation": base.map(|b| hex(&b.permutation)),
        "permutation_known": base.map(|b| format!("{:#x}", b.known)),
        "agree": base.map(|b| json!({ "observations": b.agree.1, "agree": b.agree.0 })),
        "log10_doubt": base.map(|b| b.ln_doubt / std::f64::consts::LN_10),
    })
}

fn clusters_value(found: &Clusters, configured: &Result<Configured, ConfigureError>) -> Value {
    let clusters: Vec<&[u32]> = found.clusters.iter().map(|c| c.0.as_slice()).collect();
    let mut value = json!({
        "outcome": if configured.is_ok() { "linear" } else { "clusters" },
        "clusters": clusters,
        "unused_bits": found.unused,
        "counts": { "kept": found.counts.0, "dropped": found.counts.1, "agree": found.agree },
    });
    match configured {
        Ok(chosen) => {
            value["masks"] = hex(&chosen.masks);
            value["configurations"] = chosen.tried.into();
            value["numbered"] = json!({
                "lines": chosen.agree.1, "agree": chosen.agree.0, "next": chosen.next,
            });
        }
        Err(why) => value["why"] = why.to_string().into(),
    }
    value
}

/// Addresses do not survive JSON readers that hold numbers as floats.
pub fn hex(masks: &[u64]) -> Value {
    masks.iter().map(|mask| format!("{mask:#x}")).collect::<Vec<_>>().into()
}
