//! All sides of a bench in turn, and what becomes of their figures.

use super::super::report::{Beside, Better, Case, Report, Samples};
use super::Settings;
use super::mounted::Mounted;
use super::side::Side;
use super::stage::Stage;
use crate::failure::{During, Result};

/// One of the figures that a measurement gives.
pub struct Figure {
    /// What it is of.
    pub case: String,
    /// Its unit.
    pub unit: &'static str,
    /// Which way it is better.
    pub better: Better,
    /// What Lode's, divided by the peer's, is held against.
    pub bar: f64,
}

impl Figure {
    /// One that is to be high.
    pub fn high(case: impl Into<String>, unit: &'static str, bar: f64) -> Figure {
        Figure { case: case.into(), unit, better: Better::Higher, bar }
    }
}

/// Figures of all sides.
pub struct Measured {
    sides: Vec<(Side, Vec<Samples>)>,
}

/// Measures every side once a round, each on an empty file system. `measure` gives as many figures as `figures` has.
pub fn measure(
    stage: &Stage,
    settings: &Settings,
    sides: &[Side],
    figures: usize,
    mut measure: impl FnMut(&mut Mounted<'_>) -> Result<Vec<f64>>,
) -> Result<Measured> {
    let mut measured = Measured { sides: Vec::new() };
    measured.sides.extend(sides.iter().map(|side| (*side, vec![Samples::default(); figures])));
    for round in 0..settings.common.rounds {
        for turn in 0..sides.len() {
            let which = (turn + usize::try_from(round).unwrap_or(0)) % sides.len();
            let (side, samples) = &mut measured.sides[which];
            let mut mounted = stage.fresh(*side)?;
            let found = measure(&mut mounted).during(|| format!("on {}", side.name()))?;
            mounted.close()?;
            samples.iter_mut().zip(found).for_each(|(samples, found)| samples.push(found));
        }
    }
    Ok(measured)
}

impl Measured {
    /// The figures of one kind of a side.
    pub fn samples(&self, side: Side, figure: usize) -> Option<&Samples> {
        self.sides.iter().find(|(which, _)| *which == side).and_then(|(_, samples)| samples.get(figure))
    }

    /// The sides of Lode.
    pub fn lode(&self) -> impl Iterator<Item = Side> + '_ {
        self.sides.iter().map(|(side, _)| *side).filter(|side| side.is_lode())
    }

    /// Lode, in each of its orders, against the peer that the bars are for; the others beside it.
    pub fn report(&self, report: &mut Report, figures: &[Figure], judge: Side) {
        for (at, figure) in figures.iter().enumerate() {
            for side in self.lode() {
                let (Some(lode), Some(peer)) = (self.samples(side, at), self.samples(judge, at)) else { continue };
                let case = format!("{}, {}", figure.case, side.name());
                let peer = (judge.name(), peer.clone());
                report.cases.push(Case::against(case, figure.unit, lode.clone(), peer, figure.better, figure.bar));
            }
            for (side, samples) in self.sides.iter().filter(|(side, _)| !side.is_lode() && *side != judge) {
                let (side, case) = (side.name(), figure.case.clone());
                report.beside.push(Beside { case, side, figure: samples[at].median(), unit: figure.unit });
            }
        }
    }
}
