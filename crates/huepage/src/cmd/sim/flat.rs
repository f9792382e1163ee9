//! Rows of a sweep as flat columns, for CSV and Parquet, and back again: every number, text and
//! flag of the JSON is a column named by its place, and what is left when they are taken out,
//! the shape, is the same for almost all rows. Writes no file.

use std::collections::BTreeMap;

use serde_json::Value;

/// A column's name and its value in one row.
pub type Cell = (String, Value);
/// The column that holds the JSON of a row without its values.
pub const SHAPE: &str = "shape";
/// What the columns of a program begin with.
const PROGRAMS: &str = "spaces.";

/// All cells of a row, programs one after the other: what a line of CSV holds.
pub fn flatten(row: &Value) -> Vec<Cell> {
    let mut cells = Vec::new();
    visit(&mut row.clone(), &mut |name, value| cells.push((name.to_owned(), value.clone())));
    cells
}

/// A row as records, one for each program (one without a program if there is none), each with
/// the cells of the run, its own, and the shape of the whole.
pub fn records(row: &Value) -> Vec<Vec<Cell>> {
    let programs = row["report"]["spaces"].as_array().map_or(0, Vec::len);
    let (mut run, mut own) = (Vec::new(), vec![Vec::new(); programs.max(1)]);
    let mut shape = row.clone();
    visit(&mut shape, &mut |name, value| {
        let cell = value.clone();
        match program_column(name) {
            Some((program, column)) => own[program].push((column, cell)),
            None => run.push((name.to_owned(), cell)),
        }
        *value = blank(value);
    });
    let shape = (SHAPE.to_owned(), Value::from(shape.to_string()));
    let whole = |own: Vec<Cell>| [run.clone(), own, vec![shape.clone()]].concat();
    own.into_iter().map(whole).collect()
}

/// The row that [`records`] made these of, which are all that have its point, in order.
///
/// # Errors
/// In words, what is missing or of another kind.
pub fn restore(records: &[BTreeMap<String, Value>]) -> Result<Value, String> {
    let shape = records.first().and_then(|first| first.get(SHAPE)).and_then(Value::as_str);
    let shape = shape.ok_or_else(|| format!("no column `{SHAPE}`"))?;
    let mut row: Value = serde_json::from_str(shape).map_err(|e| format!("`{SHAPE}`: {e}"))?;
    if !row.is_object() {
        return Err(format!("`{SHAPE}` is no JSON object"));
    }
    let mut wrong = None;
    visit(&mut row, &mut |name, value| {
        let (program, column) = program_column(name).unwrap_or_else(|| (0, name.to_owned()));
        let cell = records.get(program).and_then(|record| record.get(&column));
        match cell.filter(|cell| blank(cell) == *value) {
            Some(cell) => value.clone_from(cell),
            None => wrong = Some(format!("no fitting value in column `{column}`")),
        }
    });
    wrong.map_or(Ok(row), Err)
}

/// `spaces.2.cycles` is the column `spaces.cycles` of program 2.
fn program_column(name: &str) -> Option<(usize, String)> {
    let (program, column) = name.strip_prefix(PROGRAMS)?.split_once('.')?;
    Some((program.parse().ok()?, format!("{PROGRAMS}{column}")))
}

/// A value of the same kind that says nothing.
fn blank(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => Value::from(0.0),
        Value::Number(_) => Value::from(0),
        Value::String(_) => Value::from(""),
        Value::Bool(_) => Value::from(false),
        other => other.clone(),
    }
}

/// Calls `see` with the name and value of every cell.
fn visit(row: &mut Value, see: &mut impl FnMut(&str, &mut Value)) {
    see("point", &mut row["point"]);
    for pair in row["parameters"].as_array_mut().into_iter().flatten() {
        if let Some([Value::String(key), value]) = pair.as_array_mut().map(Vec::as_mut_slice) {
            see(key, value);
        }
    }
    descend("", &mut row["report"], see);
}

/// Named parts ("L1 data cache", …) are pairs of a name and a value.
fn descend(path: &str, value: &mut Value, see: &mut impl FnMut(&str, &mut Value)) {
    let under =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, value)| descend(&under(name), value, see));
        }
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                match item.as_array_mut().map(Vec::as_mut_slice) {
                    Some([Value::String(name), value]) => {
                        descend(&under(&name.replace(' ', "_")), value, see);
                    }
                    _ => descend(&under(&at.to_string()), item, see),
                }
            }
        }
        Value::Null => {}
        leaf => see(path, leaf),
    }
}

/// One line per row: what was varied, then every number of the report by its place in it.
pub fn csv(rows: &[Value]) -> String {
    let flat: Vec<Vec<Cell>> = rows.iter().map(flatten).collect();
    let columns = columns(&flat);
    let quoted: Vec<String> = columns.iter().map(|name| quote(name)).collect();
    let mut text = quoted.join(",") + "\n";
    for row in flat {
        let row: BTreeMap<String, Value> = row.into_iter().collect();
        let cell = |column: &String| row.get(column).map_or_else(String::new, plain);
        text += &(columns.iter().map(cell).collect::<Vec<_>>().join(",") + "\n");
    }
    text
}

/// The names of all columns, in the order of their first appearance.
pub fn columns(rows: &[Vec<Cell>]) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let names = rows.iter().flatten().map(|(name, _)| name);
    names.filter(|name| seen.insert(name.as_str())).cloned().collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), quote)
}

fn quote(text: &str) -> String {
    let quoted = text.contains([',', '"', '\n']);
    if quoted { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn example() -> Value {
        json!({
            "point": 3,
            "parameters": [["l2.size", "1M"], ["seed", "2"]],
            "report": {
                "machine": "a, \"b\"",
                "caches": [["L1 data cache", {"misses": [1, 2, 3]}]],
                "colors": null,
                "occupancy": [],
                "spaces": [
                    {"space": 0, "ipc": 1.0, "pages_by_color": [7, u64::MAX]},
                    {"space": 1, "ipc": 0.1, "pages_by_color": []},
                ],
            },
        })
    }

    fn maps(row: &Value) -> Vec<BTreeMap<String, Value>> {
        records(row).into_iter().map(|cells| cells.into_iter().collect()).collect()
    }

    #[test]
    fn a_row_is_a_record_for_each_program_and_comes_back_as_it_was() {
        let row = example();
        let maps = maps(&row);
        assert_eq!(maps.len(), 2);
        for (at, ipc) in [(0, 1.0), (1, 0.1)] {
            assert_eq!(maps[at]["spaces.ipc"], json!(ipc));
            assert_eq!(maps[at]["point"], json!(3));
            assert_eq!(maps[at]["l2.size"], json!("1M"));
            assert_eq!(maps[at]["caches.L1_data_cache.misses.2"], json!(3));
        }
        assert_eq!(restore(&maps).unwrap().to_string(), row.to_string());
    }

    #[test]
    fn a_run_without_a_program_is_a_record_too() {
        let mut row = example();
        row["report"]["spaces"] = json!([]);
        assert_eq!(maps(&row).len(), 1);
        assert_eq!(restore(&maps(&row)).unwrap(), row);
    }

    #[test]
    fn what_was_lost_is_named() {
        let mut maps = maps(&example());
        let last = maps.pop().unwrap();
        assert!(restore(&maps).unwrap_err().contains("spaces."));
        maps.push(last);
        maps[0].insert("machine".to_owned(), json!(7));
        assert!(restore(&maps).unwrap_err().contains("machine"));
        maps[0].remove(SHAPE);
        assert!(restore(&maps).unwrap_err().contains(SHAPE));
        assert!(restore(&[]).is_err());
    }

    #[test]
    fn csv_has_a_line_per_row_and_quotes_what_needs_it() {
        let text = csv(&[example()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("point,l2.size,seed,caches.L1_data_cache.misses.0"), "{text}");
        assert!(lines[0].contains("spaces.1.ipc"), "{text}");
        assert!(lines[1].contains("\"a, \"\"b\"\"\""), "{text}");
        assert!(lines[1].contains(&u64::MAX.to_string()), "{text}");
    }
}
