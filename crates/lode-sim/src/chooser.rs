//! One vector of choices after another, until every combination was made.
//!
//! A run asks [`Chooser::choose`] whenever something could have gone several ways. The answers are a *path*: pairs of
//! a value and how many values there were. [`Chooser::advance`] moves to the next path: it increments the rightmost
//! value that can be, and forgets what follows. What a run never asks is never branched on, so each distinguishable
//! case is made once, and the path is the case's name.

use crate::rng::{Rng, mix};

/// How choices beyond the known path are made.
#[derive(Clone, Debug)]
enum Beyond {
    /// The first value, so that `advance` will visit all.
    First,
    /// By a seeded draw; written on the path. The first value comes with the given chance in a hundred.
    Drawn(Rng, u64),
    /// By a hash of the seed and of what is asked, or always the first value; not written on the path: the case is
    /// already named.
    Frozen(Option<u64>),
}

/// A path of choices and the place on it.
#[derive(Clone, Debug)]
pub struct Chooser {
    path: Vec<(u32, u32)>,
    /// How many of the path's values were given and not found out.
    given: usize,
    cursor: usize,
    beyond: Beyond,
}

impl Chooser {
    /// Starts with the first value of every choice.
    pub fn exhaustive() -> Self {
        Chooser { path: Vec::new(), given: 0, cursor: 0, beyond: Beyond::First }
    }

    /// Draws every choice from `seed`. How often the first value comes up is drawn too: a device loses all, some, or
    /// hardly anything.
    pub fn drawn(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let first = *rng.pick(&[10, 50, 80, 95, 99]);
        Chooser { path: Vec::new(), given: 0, cursor: 0, beyond: Beyond::Drawn(rng, first) }
    }

    /// Repeats the values of an earlier run.
    pub fn replay(values: &[u32]) -> Self {
        let path = values.iter().map(|value| (*value, u32::MAX)).collect();
        Chooser { path, given: values.len(), cursor: 0, beyond: Beyond::First }
    }

    /// A value below `bound`, which is not 0. `key` names what is asked, for choices after [`freeze`](Self::freeze).
    pub fn choose(&mut self, bound: u32, key: u64) -> u32 {
        if bound == 1 {
            return 0;
        }
        if let Beyond::Frozen(seed) = self.beyond {
            return seed.map_or(0, |seed| draw(&mut Rng::new(mix(seed, key)), bound));
        }
        let at = self.cursor;
        self.cursor += 1;
        if let Some(step) = self.path.get_mut(at) {
            if at < self.given {
                step.1 = bound;
            }
            assert!(step.1 == bound && step.0 < bound, "the run asks other questions than before on the same path");
            return step.0;
        }
        let value = match &mut self.beyond {
            Beyond::Drawn(rng, first) => {
                if rng.percent(*first) {
                    0
                } else {
                    1 + draw(rng, bound - 1)
                }
            }
            _ => 0,
        };
        self.path.push((value, bound));
        value
    }

    /// Moves to the next path and back to its start. False when all were made.
    pub fn advance(&mut self) -> bool {
        self.path.truncate(self.cursor);
        self.cursor = 0;
        self.given = 0;
        self.beyond = Beyond::First;
        while let Some(step) = self.path.last_mut() {
            if step.0 + 1 < step.1 {
                step.0 += 1;
                return true;
            }
            self.path.pop();
        }
        false
    }

    /// From now on draws choices without naming them: the case is settled, what follows is a sample. Where every
    /// choice so far was the first value, so are those to come: nothing was lost, and nothing will be.
    pub fn freeze(&mut self, seed: u64) {
        self.path.truncate(self.cursor);
        let all_first = self.path.iter().all(|step| step.0 == 0);
        self.beyond = Beyond::Frozen(if all_first { None } else { Some(seed) });
    }

    /// The values chosen so far.
    pub fn values(&self) -> Vec<u32> {
        self.path[..self.cursor.min(self.path.len())].iter().map(|step| step.0).collect()
    }
}

fn draw(rng: &mut Rng, bound: u32) -> u32 {
    u32::try_from(rng.below(u64::from(bound))).expect("a number below a 32-bit bound has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::Chooser;

    #[test]
    fn every_combination_is_made_once() {
        let mut chooser = Chooser::exhaustive();
        let mut seen = Vec::new();
        loop {
            let first = chooser.choose(3, 0);
            let second = if first == 1 { chooser.choose(2, 0) } else { 0 };
            seen.push((first, second));
            if !chooser.advance() {
                break;
            }
        }
        assert_eq!(seen, [(0, 0), (1, 0), (1, 1), (2, 0)]);
    }

    #[test]
    fn a_path_replays() {
        let mut drawn = Chooser::drawn(7);
        let made: Vec<u32> = (2..9).map(|bound| drawn.choose(bound, 0)).collect();
        let mut again = Chooser::replay(&drawn.values());
        assert_eq!(made, (2..9).map(|bound| again.choose(bound, 0)).collect::<Vec<u32>>());
    }
}
