//! What a bench found: figures, bars, and whether they are met.

use crate::text;
use serde::Serialize;

/// All figures of one bench.
#[derive(Serialize)]
pub struct Report {
    /// The bench.
    pub name: &'static str,
    /// Its cases.
    pub cases: Vec<Case>,
    /// What others did with the same, compared with no bar.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// Remarks for people.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// A figure that is only shown.
#[derive(Serialize)]
pub struct Beside {
    /// What was measured.
    pub case: String,
    /// Whose figure it is.
    pub side: &'static str,
    /// The median.
    pub figure: f64,
    /// Its unit.
    pub unit: &'static str,
}

/// One comparison. `ratio` is what is held against `bar`.
#[derive(Serialize)]
pub struct Case {
    /// What was measured.
    pub case: String,
    /// Lode's median.
    pub lode: f64,
    /// The peer's median, if there is a peer.
    pub peer: Option<f64>,
    /// What the peer is.
    pub peer_name: String,
    /// The unit of both.
    pub unit: &'static str,
    /// `lode` over `peer`; `lode` itself where the bar is absolute.
    pub ratio: f64,
    /// The bar.
    pub bar: f64,
    /// `higher` or `lower`: which way `ratio` is better.
    pub better: Better,
    /// How many rounds the medians are of.
    pub rounds: usize,
    /// Whether the bar is met.
    pub pass: bool,
    #[serde(skip)]
    spread: (Samples, Samples),
}

/// Which way is better.
#[derive(Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

impl Better {
    fn met(self, ratio: f64, bar: f64) -> bool {
        match self {
            Better::Higher => ratio >= bar,
            Better::Lower => ratio <= bar,
        }
    }
}

/// One figure for each round.
#[derive(Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds the figure of one round.
    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// The figures, round by round.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }

    /// Adds the figures of others.
    pub fn extend(&mut self, others: &Samples) {
        self.0.extend(&others.0);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// The middle one, or the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }

    /// The least one.
    pub fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    /// The largest one.
    pub fn largest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    fn show(&self) -> String {
        if self.0.is_empty() {
            return "-".into();
        }
        format!("{} / {} / {}", digits(self.least()), digits(self.median()), digits(self.largest()))
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Samples(samples.into_iter().collect())
    }
}

impl Case {
    /// Lode against a peer.
    pub fn against(
        case: impl Into<String>,
        unit: &'static str,
        lode: Samples,
        peer: (&str, Samples),
        better: Better,
        bar: f64,
    ) -> Case {
        let (peer_name, peer) = peer;
        let ratio = lode.median() / peer.median();
        Case {
            case: case.into(),
            lode: lode.median(),
            peer: Some(peer.median()),
            peer_name: peer_name.into(),
            unit,
            ratio,
            bar,
            better,
            rounds: lode.0.len().min(peer.0.len()),
            pass: better.met(ratio, bar),
            spread: (lode, peer),
        }
    }

    /// Lode against an absolute bar. A `peer` is shown beside it.
    pub fn absolute(
        case: impl Into<String>,
        unit: &'static str,
        lode: Samples,
        peer: Option<(&str, Samples)>,
        better: Better,
        bar: f64,
    ) -> Case {
        let figure = lode.median();
        let (peer_name, peer) = peer.map_or(("an absolute bar", Samples::default()), |peer| peer);
        Case {
            case: case.into(),
            lode: figure,
            peer: (!peer.0.is_empty()).then(|| peer.median()),
            peer_name: peer_name.into(),
            unit,
            ratio: figure,
            bar,
            better,
            rounds: lode.0.len(),
            pass: better.met(figure, bar),
            spread: (lode, peer),
        }
    }
}

/// A figure with about four digits.
pub fn digits(figure: f64) -> String {
    match figure.abs() {
        n if n >= 1000.0 => format!("{figure:.0}"),
        n if n >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.3}"),
    }
}

impl Report {
    /// An empty report.
    pub fn new(name: &'static str) -> Self {
        Report { name, cases: Vec::new(), beside: Vec::new(), notes: Vec::new() }
    }

    /// The report for people.
    pub fn table(&self) -> String {
        let heading = ["CASE", "UNIT", "LODE min/median/max", "PEER min/median/max", "RATIO", "BAR", "", "PEER"];
        let mut rows = vec![heading.map(String::from).to_vec()];
        for case in &self.cases {
            let sign = if case.better == Better::Higher { ">=" } else { "<=" };
            rows.push(vec![
                case.case.clone(),
                case.unit.into(),
                case.spread.0.show(),
                case.spread.1.show(),
                digits(case.ratio),
                format!("{sign} {}", case.bar),
                if case.pass { "met".into() } else { "MISSED".into() },
                case.peer_name.clone(),
            ]);
        }
        let notes: String = self.notes.iter().map(|note| format!("  {note}\n")).collect();
        format!("{}\n{}{}{notes}\n", self.name, text::table(&rows), self.others())
    }

    /// What others did, a line for each case.
    fn others(&self) -> String {
        let lines = self.beside.chunk_by(|one, next| one.case == next.case).map(|of_case| {
            let figures = of_case.iter().map(|beside| format!("{} {}", beside.side, digits(beside.figure)));
            let figures = figures.collect::<Vec<_>>().join(", ");
            format!("  {}, {}: {figures}\n", of_case[0].case, of_case[0].unit)
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Better, Case, Samples};

    #[test]
    fn medians_and_bars() {
        let samples = |list: &[f64]| list.iter().copied().collect::<Samples>();
        assert!((samples(&[3.0, 1.0, 2.0]).median() - 2.0).abs() < 1e-9);
        assert!((samples(&[4.0, 1.0, 2.0, 3.0]).median() - 2.5).abs() < 1e-9);
        let case = Case::against("c", "s", samples(&[2.0]), ("p", samples(&[4.0])), Better::Lower, 0.5);
        assert!(case.pass && (case.ratio - 0.5).abs() < 1e-9);
        assert!(!Case::absolute("c", "s", samples(&[2.0]), None, Better::Higher, 2.1).pass);
        assert!(!Case::absolute("c", "s", samples(&[]), None, Better::Higher, 0.0).pass, "no figure meets no bar");
    }

    #[test]
    fn json_has_the_promised_fields_and_no_others() {
        let case = Case::absolute("c", "s", [1.0].into_iter().collect(), None, Better::Lower, 2.0);
        let json = serde_json::to_value(&case).expect("a case is JSON");
        let mut names: Vec<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["bar", "better", "case", "lode", "pass", "peer", "peer_name", "ratio", "rounds", "unit"]);
    }
}
