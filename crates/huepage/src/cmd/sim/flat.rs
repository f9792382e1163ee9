//! Rows of a sweep as flat columns, for CSV: every number, text and flag of the JSON is a column
//! named by its place. Writes no file.

use std::collections::BTreeMap;

use serde_json::Value;

/// A column's name and its value in one row.
pub type FlatCell = (String, Value);

/// All cells of a row, programs one after the other: what a line of CSV holds.
pub fn flatten(row: &Value) -> Vec<FlatCell> {
    let mut cells = Vec::new();
    visit(&mut row.clone(), &mut |name, value| cells.push((name.to_owned(), value.clone())));
    cells
}

/// Calls `see` with the name and value of every cell.
fn visit(row: &mut Value, see: &mut impl FnMut(&str, &mut Value)) {
    see("point", &mut row["point"]);
    for parameter in row["parameters"].as_array_mut().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        see(&name, &mut parameter["value"]);
    }
    if let Some(part) = row.get_mut("part") {
        descend("part", part, see);
    }
    descend("", &mut row["report"], see);
}

/// Named parts ("L1 data cache", …) go by their names.
fn descend(path: &str, value: &mut Value, see: &mut impl FnMut(&str, &mut Value)) {
    let under =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, value)| descend(&under(name), value, see));
        }
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                let name = item.as_object_mut().and_then(|fields| fields.shift_remove("name"));
                let name = name.as_ref().and_then(Value::as_str).map(|name| name.replace(' ', "_"));
                descend(&under(&name.unwrap_or_else(|| at.to_string())), item, see);
            }
        }
        Value::Null => {}
        leaf => see(path, leaf),
    }
}

/// One line per row: what was varied, then every number of the report by its place in it. Nothing of no
/// rows, as a part of a sweep may have none.
pub fn csv(rows: &[Value]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let flat: Vec<Vec<FlatCell>> = rows.iter().map(flatten).collect();
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
pub fn columns(rows: &[Vec<FlatCell>]) -> Vec<String> {
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
            "parameters": [{"name": "l2.size", "value": "1M"}, {"name": "seed", "value": "2"}],
            "report": {
                "machine": "a, \"b\"",
                "caches": [{"name": "L1 data cache", "misses": {"fetches": 1, "loads": 2}}],
                "colors": null,
                "occupancy": [],
                "spaces": [
                    {"space": 0, "ipc": 1.0, "pages_by_color": [7, u64::MAX]},
                    {"space": 1, "ipc": 0.1, "pages_by_color": []},
                ],
            },
        })
    }

    #[test]
    fn csv_has_a_line_per_row_and_quotes_what_needs_it() {
        let text = csv(&[example()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].starts_with("point,l2.size,seed,machine,caches.L1_data_cache.misses.fetches"),
            "{text}"
        );
        assert!(lines[0].contains("spaces.1.ipc"), "{text}");
        assert!(lines[1].contains("\"a, \"\"b\"\"\""), "{text}");
        assert!(lines[1].contains(&u64::MAX.to_string()), "{text}");
        assert_eq!(csv(&[]), "");
    }
}
