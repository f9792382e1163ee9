//! Draws the model: the table with its panels, the map of one process, the keys. Where colours are not
//! wanted it uses attributes alone. Nothing is decided here, and nothing is written but cells of the
//! frame it is given.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::columns::{COLUMNS, TopColumn};
use super::heat::{self, HeatRow};
use super::keys::HELP;
use super::model::{TopModel, TopPage, TopRow};
use super::snapshot::{ProcessNow, ResidencyNow};
use super::text;
use crate::style::count;

/// Columns of a screen that is not narrow.
const WIDE: u16 = 110;
/// Glyphs of the map, from cold to hot.
const LEVELS: [char; 5] = ['.', '░', '▒', '▓', '█'];
/// Their colours.
const HEATS: [Color; 5] = [Color::Blue, Color::Cyan, Color::Green, Color::Yellow, Color::Red];

/// Whether colours are used.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Off where the user does not want them.
    pub colored: bool,
}

impl Theme {
    fn of(self, color: Color) -> Style {
        if self.colored { Style::new().fg(color) } else { Style::new() }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws all of it.
pub fn draw(frame: &mut Frame, model: &mut TopModel, theme: Theme) {
    let area = frame.area();
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
            .areas(area);
    frame.render_widget(Paragraph::new(title(model)), head);
    match model.page {
        TopPage::List => list(frame, body, model, theme),
        TopPage::Heat { pid, .. } => map(frame, body, model, pid, theme),
        TopPage::Help => help(frame, body),
    }
    frame.render_widget(Paragraph::new(footer(model, theme)), foot);
}

fn title(model: &TopModel) -> Line<'static> {
    let (now, (sort, inverted)) = (&model.now, model.sort);
    let turned = if inverted { ", inverted" } else { "" };
    let paused = if model.paused { "; standing still" } else { "" };
    let [groups, processes] = [now.groups.len(), now.processes.len()];
    let rest = format!(
        " {}, {}; by {}{turned}{paused}",
        count(groups as u64, "group", "groups"),
        count(processes as u64, "process", "processes"),
        sort.name(),
    );
    Line::from(vec![Span::styled("huepage top", BOLD), Span::raw(rest)])
}

fn footer(model: &TopModel, theme: Theme) -> Line<'static> {
    if let Some(message) = &model.message {
        return Line::styled(text::name(message, 500), theme.of(Color::Yellow));
    }
    let keys = match model.page {
        TopPage::List => {
            "q quit  enter by address  m l c r s p n sort  f freeze all  space stop  ? keys"
        }
        TopPage::Heat { .. } => "esc back  up down scroll  f freeze all  space stop  q quit",
        TopPage::Help => "any key goes back",
    };
    Line::styled(keys, DIM)
}

fn list(frame: &mut Frame, area: Rect, model: &TopModel, theme: Theme) {
    let panel = (area.height / 5).clamp(2, 9);
    let sizes = [Constraint::Fill(1), Constraint::Length(panel), Constraint::Length(panel)];
    let [table, hottest, decided] = Layout::vertical(sizes).areas(area);
    frame.render_widget(Paragraph::new(rows(model, table, theme)), table);
    frame.render_widget(Paragraph::new(areas(model, hottest)), hottest);
    frame.render_widget(Paragraph::new(decisions(model, decided)), decided);
}

/// Widths of columns: of name, strip, and what the hottest area is called, where there is room.
fn widths(width: u16) -> [usize; 3] {
    let free = usize::from(width.saturating_sub(52));
    if width < WIDE {
        let strip = (free / 2 + 2).min(free).min(32);
        return [free - strip, strip, 0];
    }
    [16, 24, free - 16 - 24 - 1]
}

fn rows(model: &TopModel, area: Rect, theme: Theme) -> Vec<Line<'static>> {
    let widths = widths(area.width);
    let mut lines = vec![header(widths)];
    let rows = model.rows();
    let chosen = model.selected(&rows);
    let seen = usize::from(area.height.saturating_sub(1)).max(1);
    let from = (chosen + 1).saturating_sub(seen);
    for (at, row) in rows.iter().enumerate().skip(from).take(seen) {
        let line = match row {
            TopRow::Group(group) => {
                Line::styled(text::name(&text::group(*group), usize::from(area.width)), BOLD)
            }
            TopRow::Process(process) => Line::from(process_spans(process, widths, theme)),
        };
        lines.push(if at == chosen { line.style(CHOSEN) } else { line });
    }
    if rows.is_empty() {
        lines.push(Line::raw(match model.begun {
            true => "nobody is in a partition; start something: huepage run, or name a PID",
            false => "looking ...",
        }));
    }
    lines
}

fn header([name, strip, hottest]: [usize; 3]) -> Line<'static> {
    let mut text = format!(" {:>7} {:name$} {:strip$}", "PID", "NAME", "COLOURS");
    for TopColumn { heading, width, .. } in &COLUMNS {
        text += &format!(" {heading:>width$}");
    }
    if hottest > 0 {
        text += " HOTTEST";
    }
    Line::styled(text, Style::new().add_modifier(Modifier::UNDERLINED))
}

fn process_spans(process: &ProcessNow, widths: [usize; 3], theme: Theme) -> Vec<Span<'static>> {
    let [name, strip, hottest] = widths;
    let residency = process.residency.as_ref();
    let own = text::name(&process.name, name);
    let mut spans = vec![Span::raw(format!(" {:>7} {own:name$} ", process.pid))];
    spans.extend(strip_spans(process, strip, theme));
    let share = process.compliance.map(|c| c.share);
    for column in &COLUMNS {
        let cell = format!(" {:>1$}", column.text(process), column.width);
        let style = if column.title == "compliance" { judged(share, theme) } else { Style::new() };
        spans.push(Span::styled(cell, style));
    }
    if hottest > 0 {
        let first = residency.and_then(|r| r.hottest().first().map(|area| called(area)));
        let said = first.or_else(|| process.no_residency.clone()).unwrap_or_default();
        spans.push(Span::raw(format!(" {}", text::tail(&said, hottest))));
    }
    spans
}

fn judged(share: Option<f64>, theme: Theme) -> Style {
    match share {
        Some(share) if share >= 0.99 => theme.of(Color::Green),
        Some(share) if share >= 0.9 => theme.of(Color::Yellow),
        Some(_) => theme.of(Color::Red),
        None => Style::new(),
    }
}

fn strip_spans(process: &ProcessNow, width: usize, theme: Theme) -> Vec<Span<'static>> {
    let cells = text::strip(process, width);
    let style = |inside| match inside {
        Some(true) => theme.of(Color::Green),
        Some(false) => theme.of(Color::Red),
        None => theme.of(Color::Yellow),
    };
    let mut spans: Vec<Span> =
        cells.iter().map(|cell| Span::styled(cell.glyph.to_string(), style(cell.inside))).collect();
    let none = if cells.is_empty() { text::UNKNOWN } else { "" };
    let rest = width.saturating_sub(cells.len());
    spans.push(Span::raw(format!("{none:rest$}")));
    spans
}

fn called(area: &huepage_policy::residency::AreaSeen) -> String {
    if area.name.is_empty() { area.kind.text().to_owned() } else { area.name.clone() }
}

fn section(text: String) -> Line<'static> {
    Line::styled(text, BOLD)
}

/// The areas of the selected process with most in the cache.
fn areas(model: &TopModel, area: Rect) -> Vec<Line<'static>> {
    let Some(process) = model.focus() else { return vec![section("in the cache".to_owned())] };
    let whose = format!("{} {}", process.pid, text::name(&process.name, 20));
    let Some(residency) = &process.residency else {
        let why = process.no_residency.as_deref().unwrap_or("it is about to be looked at");
        return vec![section(format!("{whose} in the cache: not known, {}", text::name(why, 500)))];
    };
    let looks = text::count(residency.samples as f64);
    let cache = residency.cache;
    let mut lines = vec![section(format!("{whose} in the {cache}, of {looks} looks"))];
    let room = usize::from(area.height.saturating_sub(1));
    lines.extend(residency.hottest().into_iter().take(room).map(|seen| {
        let most = usize::from(area.width.saturating_sub(49));
        Line::raw(format!(
            " {:>6} {:>7} of {:>5}  {:>12x}  {:<13} {}",
            text::bytes(seen.cached_bytes()),
            text::percent(seen.share()),
            text::bytes(seen.resident as f64 * 4096.0),
            seen.start,
            seen.kind.text(),
            text::tail(&seen.name, most),
        ))
    }));
    lines
}

fn decisions(model: &TopModel, area: Rect) -> Vec<Line<'static>> {
    let who = match &model.now.no_daemon {
        Some(why) => format!(" ({why}: what supervisors did)"),
        None => String::new(),
    };
    let mut lines = vec![section(format!("decisions{who}"))];
    let room = usize::from(area.height.saturating_sub(1));
    lines.extend(model.decisions().take(room).map(|decision| {
        let age = (model.now.at - decision.at).max(0.0);
        let text = format!(" {age:>4.0} s ago  {}: {}", decision.group, decision.text);
        Line::raw(text::name(&text, usize::from(area.width)))
    }));
    lines
}

/// Residency of one process by address.
fn map(frame: &mut Frame, area: Rect, model: &mut TopModel, pid: i32, theme: Theme) {
    let Some(process) = model.process(pid).cloned() else {
        let gone = format!("process {pid} has ended or left; esc goes back");
        return frame.render_widget(Paragraph::new(gone), area);
    };
    let mut lines = facts(model, &process, area.width, theme);
    let head = lines.len() + 1;
    if let Some(residency) = &process.residency {
        // An address, a kind, a share, a size and gaps beside the cells.
        let rows = heat_rows(residency, area.width);
        let seen = usize::from(area.height).saturating_sub(head).max(1);
        model.keep_within(rows.len(), seen);
        let TopPage::Heat { from, .. } = model.page else { return };
        lines.push(scale(residency.cache, (rows.len(), from, seen), theme));
        lines
            .extend(rows.iter().skip(from).take(seen).map(|row| heat_line(row, area.width, theme)));
    } else {
        let why = process.no_residency.as_deref().unwrap_or("it is about to be looked at");
        lines.push(Line::raw(format!("what of it is in the cache is not known: {why}")));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn heat_rows(residency: &ResidencyNow, width: u16) -> Vec<HeatRow> {
    heat::rows(&residency.areas, &residency.sampled_pages, cells_in(width))
}

/// Cells of the map in a row of the screen.
fn cells_in(width: u16) -> usize {
    usize::from(width.saturating_sub(40)).max(8)
}

fn facts(model: &TopModel, process: &ProcessNow, width: u16, theme: Theme) -> Vec<Line<'static>> {
    let group = model.group_of(process);
    let whose = text::name(&process.name, 20);
    let figures = COLUMNS.iter().map(|column| format!("{} {}", column.title, column.text(process)));
    let mut lines = vec![
        section(format!("{} {whose}  {}", process.pid, text::group(group))),
        Line::raw(figures.collect::<Vec<_>>().join("  ")),
    ];
    if let Some(figures) = group.and_then(|group| group.figures.as_ref()) {
        lines.push(Line::raw(format!("its group: {}", figures.line())));
    }
    if process.colors.is_some() {
        let mut spans = vec![Span::raw("colours ")];
        spans.extend(strip_spans(process, usize::from(width.saturating_sub(10)).min(128), theme));
        lines.push(Line::from(spans));
    }
    lines
}

/// What shades mean in this cache, and which of all rows are seen.
fn scale(cache: &str, (rows, from, seen): (usize, usize, usize), theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::raw(format!("found in the {cache}: "))];
    for (level, label) in ["none", "< 1/4", "< 1/2", "< 3/4", "more"].into_iter().enumerate() {
        spans.push(cell(Some(level), theme));
        spans.push(Span::raw(format!(" {label}  ")));
    }
    let last = (from + seen).min(rows);
    spans.push(Span::styled(format!("{}-{last} of {rows}", (from + 1).min(rows)), DIM));
    Line::from(spans)
}

fn heat_line(row: &HeatRow, width: u16, theme: Theme) -> Line<'static> {
    let most = cells_in(width);
    let name = if row.name.is_empty() { row.kind.text() } else { &row.name };
    let mut spans = vec![Span::raw(format!("{:>12x} {:<13} ", row.start, text::tail(name, 13)))];
    spans.extend(row.cells.iter().map(|cell| self::cell(cell.level(), theme)));
    let rest = most.saturating_sub(row.cells.len());
    let size = text::bytes((row.end - row.start) as f64);
    spans.push(Span::raw(format!("{:rest$} {size:>5} {:>6}", "", text::percent(row.share()))));
    Line::from(spans)
}

fn cell(level: Option<usize>, theme: Theme) -> Span<'static> {
    match level {
        Some(level) => Span::styled(LEVELS[level].to_string(), theme.of(HEATS[level])),
        None => Span::raw(" "),
    }
}

fn help(frame: &mut Frame, area: Rect) {
    let key = |(keys, what): &(&str, &str)| {
        Line::from(vec![Span::styled(format!(" {keys:<14} "), BOLD), Span::raw((*what).to_owned())])
    };
    let mut lines = vec![Line::raw("")];
    lines.extend(HELP.iter().map(key));
    lines.push(Line::raw(""));
    let colors = "Pages in each colour; dots are colours outside the partition.";
    let figures = COLUMNS.iter().map(|column| (column.heading, column.figure.help));
    let words = std::iter::once(("COLOURS", colors)).chain(figures);
    lines.extend(words.map(|(heading, help)| Line::raw(format!(" {heading:<8} {help}"))));
    frame.render_widget(Paragraph::new(lines), area);
}
