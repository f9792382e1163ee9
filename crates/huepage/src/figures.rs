//! Figures: each is defined once, with its name, unit and description and where its value comes from. Text, JSON,
//! what Prometheus reads and the columns of `huepage top` are made of the definitions, which are beside what they
//! are about: [`crate::daemon::figures`] for groups, [`crate::top::columns`] for processes.

/// How a figure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// It goes up and down.
    Gauge,
    /// It only grows.
    Counter,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    /// Things: colours, processes, pages, files.
    Count,
    /// A rate from 0 to 1, or whatever a metric says.
    Ratio,
    /// A part of something, from 0 to 1.
    Share,
    /// Bytes.
    Bytes,
    /// Things in a second.
    PerSecond,
    /// Seconds.
    Seconds,
}

/// A figure of a `T`: what is known of it, and where its value is.
#[derive(Clone, Copy, Debug)]
pub struct Figure<T> {
    /// In JSON; dots where it lies deeper.
    pub name: &'static str,
    /// For Prometheus, if it is told there.
    pub metric: Option<&'static str>,
    /// How it changes.
    pub kind: FigureKind,
    /// What it counts.
    pub unit: FigureUnit,
    /// What it means, in a sentence.
    pub help: &'static str,
    /// Its value, if there is one.
    pub value: fn(&T) -> Option<f64>,
}

/// A value that can be a figure.
pub trait Number {
    /// As Prometheus and `huepage top` have it.
    fn number(self) -> Option<f64>;
}

impl Number for u16 {
    fn number(self) -> Option<f64> {
        Some(f64::from(self))
    }
}

impl Number for u64 {
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn number(self) -> Option<f64> {
        Some(self as f64)
    }
}

impl Number for f64 {
    fn number(self) -> Option<f64> {
        Some(self)
    }
}

impl<T: Number> Number for Option<T> {
    fn number(self) -> Option<f64> {
        self.and_then(T::number)
    }
}

impl FigureUnit {
    /// For a person.
    pub const fn word(self) -> &'static str {
        match self {
            FigureUnit::Count => "",
            FigureUnit::Ratio => "ratio",
            FigureUnit::Share => "share",
            FigureUnit::Bytes => "bytes",
            FigureUnit::PerSecond => "per second",
            FigureUnit::Seconds => "seconds",
        }
    }

    /// A value in a few characters.
    pub fn text(self, value: f64) -> String {
        match self {
            FigureUnit::Count | FigureUnit::PerSecond => count(value),
            FigureUnit::Ratio => format!("{value:.3}"),
            FigureUnit::Share => percent(Some(value)),
            FigureUnit::Bytes => bytes(value),
            FigureUnit::Seconds => format!("{value:.1} s"),
        }
    }
}

impl FigureKind {
    /// As Prometheus calls it.
    pub const fn word(self) -> &'static str {
        match self {
            FigureKind::Gauge => "gauge",
            FigureKind::Counter => "counter",
        }
    }
}

impl<T> Figure<T> {
    /// Name and value for a person, if there is a value.
    pub fn line(&self, of: &T) -> Option<String> {
        let name = self.name.replace('_', " ");
        (self.value)(of).map(|value| format!("{name} {}", self.unit.text(value)))
    }
}

/// What stands for something unknown.
pub const UNKNOWN: &str = "-";

/// Bytes in at most five characters: `912`, `456K`, `1.2G`.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, ["", "K", "M", "G", "T", "P"])
}

/// A count in at most five characters: `912`, `45k`, `1.2M`.
pub fn count(count: f64) -> String {
    scaled(count, 1000.0, ["", "k", "M", "G", "T", "P"])
}

fn scaled(mut number: f64, by: f64, units: [&str; 6]) -> String {
    let mut unit = 0;
    while number >= by - 0.5 && unit < units.len() - 1 {
        number /= by;
        unit += 1;
    }
    let places = usize::from(number < 9.95 && unit > 0);
    format!("{number:.places$}{}", units[unit])
}

/// A share in at most six characters: `99.93%`.
pub fn percent(share: Option<f64>) -> String {
    let places = |share: f64| if share < 0.99995 { 2 } else { 0 };
    share.map_or_else(|| UNKNOWN.into(), |s| format!("{:.*}%", places(s), s * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_form_of_their_unit() {
        use FigureUnit::{Bytes, Count, PerSecond, Ratio, Seconds, Share};
        let texts = [
            (Count, 45_000.0, "45k"),
            (Ratio, 0.25, "0.250"),
            (Share, 0.25, "25.00%"),
            (PerSecond, 300.0, "300"),
            (Bytes, 4096.0, "4.0K"),
            (Seconds, 2.0, "2.0 s"),
        ];
        for (unit, value, text) in texts {
            assert_eq!(unit.text(value), text, "{unit:?}");
        }
    }
}
