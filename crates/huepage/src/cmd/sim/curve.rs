//! The curve of a sweep: misses of the level that is swept, over the numbers that are. Rows are those of
//! the JSON, so that merged and resumed sweeps are drawn as well.

use huepage_policy::cache_need::{SharePoint as Need, need};
use serde_json::Value;

use crate::drawing::{PlotCurve, PlotPoint};

/// What varies, and misses for each of its values.
#[derive(Debug, PartialEq)]
pub struct SweepCurve {
    key: String,
    /// The cache whose misses they are.
    level: String,
    points: Vec<PlotPoint>,
}

/// What was varied in a row: keys and values.
pub fn parameters(row: &Value) -> Vec<(String, String)> {
    let all = row["parameters"].as_array().into_iter().flatten();
    all.filter_map(|one| Some((one["name"].as_str()?.into(), one["value"].as_str()?.into())))
        .collect()
}

/// Misses of each cache, with short names: `L1`, `L2`; one for code is `L1i`.
pub fn misses(row: &Value) -> Vec<(String, u64)> {
    let caches = row["report"]["caches"].as_array().into_iter().flatten();
    let sum = |kinds: &Value| {
        kinds.as_object().map_or(0, |all| all.values().filter_map(Value::as_u64).sum())
    };
    caches
        .filter_map(|cache| Some((short(cache["name"].as_str()?), sum(&cache["misses"]))))
        .collect()
}

fn short(name: &str) -> String {
    let level = name.split(' ').next().unwrap_or(name);
    if name.contains("instruction") { format!("{level}i") } else { level.to_owned() }
}

/// The curve over the first key, if its values are numbers and there are several; those of other keys are
/// repetitions.
pub fn of(rows: &[Value]) -> Option<SweepCurve> {
    let (key, _) = parameters(rows.first()?).into_iter().next()?;
    let level = swept(rows.first()?, &key)?;
    let mut places: Vec<(f64, Vec<f64>)> = Vec::new();
    for row in rows {
        let (_, value) = parameters(row).into_iter().next()?;
        let x = number(&value).filter(|x| *x > 0.0)?;
        let (_, misses) = misses(row).into_iter().find(|(name, _)| *name == level)?;
        match places.iter_mut().find(|(at, _)| *at == x) {
            Some((_, all)) => all.push(misses as f64),
            None => places.push((x, vec![misses as f64])),
        }
    }
    places.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let points: Vec<PlotPoint> = places.iter().map(|(x, all)| PlotPoint::of(*x, all)).collect();
    (points.len() > 1).then_some(SweepCurve { key, level, points })
}

/// The cache whose colours count; none if none has more than one.
pub fn level(row: &Value) -> Option<&str> {
    row["level"].as_str()
}

/// The level that a key is about: `l2.size` of the L2, `colors` of the one with colours, others of the last.
fn swept(row: &Value, key: &str) -> Option<String> {
    let misses = misses(row);
    let named = key.split('.').next().unwrap_or(key).to_uppercase();
    let named = level(row).filter(|_| key == "colors").unwrap_or(&named);
    let is_it = |(name, _): &&(String, u64)| name == named;
    misses.iter().find(is_it).or(misses.last()).map(|(name, _)| name.clone())
}

/// As written in a sweep: a number, or a size with K, M or G.
fn number(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "" => 1.0,
        "K" => 1024.0,
        "M" => 1024.0 * 1024.0,
        "G" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    digits.parse::<f64>().ok().map(|number| number * unit)
}

impl SweepCurve {
    /// As SVG.
    ///
    /// # Errors
    /// With the words of the drawing library.
    pub fn draw(&self, machine: &str) -> Result<String, String> {
        let title = format!("{machine}: {} misses", self.level);
        let up = format!("{} misses", self.level);
        let lines = vec![(up.clone(), self.points.clone())];
        let (across, knee) = (&self.key, self.knee());
        PlotCurve { title: &title, across, up: &up, log_up: false, lines, knee }.draw()
    }

    /// Where more colours stop to pay.
    fn knee(&self) -> Option<f64> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "colours")]
        let point = |point: &PlotPoint| Need { colors: point.x as u16, time: point.y.max(1.0) };
        let points: Vec<Need> = self.points.iter().map(point).collect();
        (self.key == "colors").then(|| need(&points)?.knee.map(f64::from)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(parameters: &[(&str, &str)], l2: u64, l3: u64) -> Value {
        let named = |(name, value): &(&str, &str)| json!({"name": name, "value": value});
        let parameters: Vec<Value> = parameters.iter().map(named).collect();
        json!({"parameters": parameters, "level": "L2", "report": {
            "caches": [{"name": "L2 unified cache", "misses": {"fetches": 0, "loads": l2}},
                       {"name": "L3 unified cache", "misses": {"fetches": 0, "loads": l3}}],
        }})
    }

    #[test]
    fn a_sweep_over_colours_is_a_curve_of_their_level_with_its_knee() {
        let misses = [("1", 1000), ("2", 990), ("4", 100), ("8", 90)];
        let rows = misses.map(|(n, misses)| row(&[("colors", n)], misses, 5));
        let found = of(&rows).unwrap();
        assert_eq!((found.level.as_str(), found.points.len()), ("L2", 4));
        assert_eq!(found.knee(), Some(4.0));
        let text = found.draw("a machine").unwrap();
        for word in ["a machine: L2 misses", "colors", "knee: 4"] {
            assert!(text.contains(word), "{word} is missing");
        }
    }

    #[test]
    fn other_keys_are_repetitions_and_sizes_are_numbers() {
        let each = [("1M", "1", 10), ("1M", "2", 20), ("2M", "1", 5), ("2M", "2", 5)];
        let rows = each.map(|(size, seed, l3)| row(&[("l3.size", size), ("seed", seed)], 7, l3));
        let found = of(&rows).unwrap();
        assert_eq!(found.level, "L3");
        assert_eq!(found.points[0], PlotPoint { x: 1048576.0, y: 15.0, range: [10.0, 20.0] });
        assert_eq!(found.points[1].range, [5.0, 5.0]);
        assert_eq!(of(&rows[..1]), None, "one value is no curve");
        assert_eq!(of(&[row(&[("mapping", "random")], 1, 1)]), None);
    }
}
