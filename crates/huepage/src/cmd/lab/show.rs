//! The columns of the lab for people, as text or as a page of HTML: a table of misses, who evicted whom, and
//! the verdict.

use serde::Serialize;

use super::outcome::{Column, LabVerdict, ProgramCounts};
use crate::html::{self, escaped};
use crate::style::{self, Style};

/// What is printed as JSON. Nothing in it depends on the host, but speeds where they are asked for.
#[derive(Serialize)]
pub struct LabReport {
    /// The machine's name.
    pub machine: String,
    /// The guest's processors.
    pub cpus: usize,
    /// The guest's kernel.
    pub kernel: String,
    /// Whether the same command counts the same.
    pub deterministic: bool,
    /// The columns.
    pub columns: Vec<Column>,
    /// What they say of the first program, where there are all three.
    pub verdict: Option<LabVerdict>,
}

impl LabReport {
    /// For a person.
    pub fn text(&self) -> String {
        let mut text = self.title() + "\n";
        for column in &self.columns {
            let name = Style::stdout().bold(&column.name);
            text += &format!("\n{name} ({})\n{}", state(column), misses(column).text());
            text += &format!("\n{EVICTED}\n{}", evictions(column).text());
            text += &column.speed.map_or(String::new(), |speed| format!("\n{}\n", speed.text()));
        }
        if let Some(verdict) = &self.verdict {
            text += &format!("\n{}\n", verdict.text);
        }
        text
    }

    /// The same as a page that needs nothing else.
    pub fn html(&self) -> String {
        let mut text = String::new();
        if let Some(verdict) = &self.verdict {
            text += &format!("<p>{}</p>\n", escaped(&verdict.text));
        }
        for column in &self.columns {
            text += &format!("<h2>{}</h2>\n<p>{}</p>\n", column.name, escaped(&state(column)));
            text += &misses(column).html();
            text += &format!("<p>{EVICTED}</p>\n{}", evictions(column).html());
            text +=
                &column.speed.map_or(String::new(), |speed| format!("<p>{}</p>\n", speed.text()));
        }
        html::page(&self.title(), &text)
    }

    fn title(&self) -> String {
        format!("{} with {} processors, Linux {}", self.machine, self.cpus, self.kernel)
    }
}

/// Over the second table.
const EVICTED: &str = "lines of the last level that the programs above evicted";
/// Headings and cells.
struct Cells {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Cells {
    fn text(self) -> String {
        let headings: Vec<&str> = self.headings.iter().map(String::as_str).collect();
        let mut table = Style::stdout().table(&headings);
        self.rows.into_iter().for_each(|row| _ = table.add_row(row));
        style::lay_out(table)
    }

    fn html(&self) -> String {
        html::table(&self.headings, &self.rows)
    }
}

/// How far its programs were when counting began.
fn state(column: &Column) -> String {
    let late =
        column.unsettled.as_ref().map_or(String::new(), |why| format!("; not settled: {why}"));
    format!("counted after {:.0} s{late}", column.settle_seconds)
}

fn misses(column: &Column) -> Cells {
    let levels = column.programs[0].levels.iter().map(|row| format!("L{} misses", row.level));
    let mut headings: Vec<String> =
        ["program", "accesses", "per victim's"].map(str::to_owned).to_vec();
    headings.extend(levels);
    headings.extend(["per access", "pages moved"].map(str::to_owned));
    if column.programs[0].tlb.is_some() {
        headings.extend(["TLB misses", "TLB per access"].map(str::to_owned));
    }
    if column.programs[0].work.is_some() {
        headings.extend(["instructions", "cycles", "cycles each"].map(str::to_owned));
    }
    let rows = column.programs.iter().enumerate().map(|(number, program)| row(number, program));
    Cells { headings, rows: rows.collect() }
}

fn row(number: usize, program: &ProgramCounts) -> Vec<String> {
    let mut cells = vec![label(number, program), program.accesses.to_string()];
    cells.push(format!("{:.2}", program.intensity));
    cells.extend(program.levels.iter().map(|row| row.counts.misses.to_string()));
    cells.push(format!("{:.3} %", program.miss_share * 100.0));
    cells.push(program.pages_moved.map_or("-".to_owned(), |pages| pages.to_string()));
    if let Some(tlb) = &program.tlb {
        let share = tlb.walks as f64 / program.accesses.max(1) as f64;
        cells.extend([tlb.walks.to_string(), format!("{:.3} %", share * 100.0)]);
    }
    if let Some(work) = program.work {
        let each = work.cycles as f64 / work.instructions.max(1) as f64;
        cells.extend([work.instructions.to_string(), work.cycles.to_string()]);
        cells.push(format!("{each:.3}"));
    }
    cells
}

fn label(number: usize, program: &ProgramCounts) -> String {
    let end =
        program.ended_early.as_ref().map_or(String::new(), |status| format!(" (ended: {status})"));
    format!("{} {}{end}", letter(number), program.name)
}

fn letter(number: usize) -> char {
    u8::try_from(number).map_or('?', |number| char::from(b'a' + number.min(25)))
}

/// Whose lines by whom; by the letters of the table above.
fn evictions(column: &Column) -> Cells {
    let names: Vec<String> = (0..column.programs.len()).map(|n| letter(n).to_string()).collect();
    let by = names.iter().map(|name| format!("by {name}"));
    let rows = names.iter().zip(&column.evictions).map(|(name, counts)| {
        [name.clone()].into_iter().chain(counts.iter().map(u64::to_string)).collect()
    });
    Cells { headings: ["of".to_owned()].into_iter().chain(by).collect(), rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use huepage_sim::lab::WorkCounts;
    use huepage_sim::lab::tlbs::TlbWork;

    use super::super::speed::LabSpeed;
    use super::*;

    #[test]
    fn a_page_has_what_the_text_has() {
        let program = ProgramCounts {
            name: "sh -c 'a <b'".to_owned(),
            accesses: 1234,
            intensity: 1.0,
            levels: Vec::new(),
            miss_share: 0.015,
            tlb: Some(TlbWork { tlbs: Vec::new(), walks: 617, cycles: 30, unknown: 0 }),
            work: Some(WorkCounts { instructions: 400, cycles: 1000 }),
            report: None,
            pages_moved: Some(77),
            ended_early: None,
        };
        let speed = LabSpeed::example();
        let column = Column {
            name: "alone".to_owned(),
            settle_seconds: 2.0,
            unsettled: Some("pages were moved".to_owned()),
            programs: vec![program],
            evictions: vec![vec![55]],
            caches: Vec::new(),
            tlbs: Vec::new(),
            accesses: 0,
            speed: Some(speed),
        };
        let report = LabReport {
            machine: "m".to_owned(),
            cpus: 2,
            kernel: "6.12".to_owned(),
            deterministic: true,
            columns: vec![column],
            verdict: None,
        };
        let (text, page) = (report.text(), report.html());
        for said in [
            "m with 2 processors, Linux 6.12",
            "1234",
            "1.500 %",
            "77",
            "617",
            "55",
            "by a",
            "2.500",
            "15.0 M accesses/s",
        ] {
            assert!(text.contains(said) && page.contains(said), "{said}: {text}{page}");
        }
        assert!(page.contains("<td>a sh -c 'a &lt;b'</td>") && !page.contains("<b"), "{page}");
        assert!(page.contains("not settled: pages were moved"), "{page}");
    }
}
