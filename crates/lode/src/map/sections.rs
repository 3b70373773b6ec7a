//! The sections of one list, by number. Lists are sparse: memory and time follow the sections that are there, not the
//! number of the last one.

use super::MapSection;
use crate::types::{index64, len_u32, low_u32};
use std::ops::Range;

/// Sections are kept in groups of so many; a group without any takes 24 bytes.
const GROUP: u64 = 256;

/// See the file's head.
#[derive(Default)]
pub(crate) struct Sections(Vec<Vec<Option<Box<MapSection>>>>);

/// Which group, and where in it.
fn split(number: u32) -> (usize, usize) {
    (index64(u64::from(number) / GROUP), index64(u64::from(number) % GROUP))
}

fn number(group: usize, at: usize) -> u32 {
    len_u32(group) * low_u32(GROUP) + len_u32(at)
}

fn room<T: Default>(of: &mut Vec<T>, at: usize) -> &mut T {
    if of.len() <= at {
        of.resize_with(at + 1, T::default);
    }
    &mut of[at]
}

/// The sections that blocks lie in, `shift` being a section's number of blocks.
pub(crate) fn sections_of(blocks: Range<u64>, shift: u32) -> Range<u64> {
    if blocks.is_empty() { 0..0 } else { (blocks.start >> shift)..((blocks.end - 1) >> shift) + 1 }
}

impl Sections {
    pub fn get(&self, number: u32) -> Option<&MapSection> {
        let (group, at) = split(number);
        self.0.get(group)?.get(at)?.as_deref()
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut MapSection> {
        let (group, at) = split(number);
        self.0.get_mut(group)?.get_mut(at)?.as_deref_mut()
    }

    /// A section's place, empty or not.
    pub fn entry(&mut self, number: u32) -> &mut Option<Box<MapSection>> {
        let (group, at) = split(number);
        room(room(&mut self.0, group), at)
    }

    /// Those that are there, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &MapSection)> {
        self.range(0..u64::MAX)
    }

    /// Those of a range of numbers that are there, in order.
    pub fn range(&self, numbers: Range<u64>) -> impl Iterator<Item = (u32, &MapSection)> {
        let groups = self.0.iter().enumerate().skip(index64(numbers.start / GROUP));
        groups
            .take_while(move |(group, _)| u64::from(self::number(*group, 0)) < numbers.end)
            .flat_map(|(group, sections)| {
                (0..).zip(sections).map(move |(at, section)| (self::number(group, at), section))
            })
            .filter_map(|(number, section)| Some((number, section.as_deref()?)))
            .filter(move |(number, _)| numbers.contains(&u64::from(*number)))
    }

    /// As [`Sections::range`], to be changed.
    pub fn range_mut(&mut self, numbers: Range<u64>) -> impl Iterator<Item = (u32, &mut MapSection)> {
        let groups = self.0.iter_mut().enumerate().skip(index64(numbers.start / GROUP));
        groups
            .take_while(move |(group, _)| u64::from(self::number(*group, 0)) < numbers.end)
            .flat_map(|(group, sections)| {
                (0..).zip(sections).map(move |(at, section)| (self::number(group, at), section))
            })
            .filter_map(|(number, section)| Some((number, section.as_deref_mut()?)))
            .filter(move |(number, _)| numbers.contains(&u64::from(*number)))
    }

    /// Memory that they take, about.
    pub fn memory(&self) -> usize {
        let groups: usize = self.0.iter().map(|group| group.capacity() * size_of::<Option<Box<MapSection>>>()).sum();
        let sections: usize = self.iter().map(|(_, section)| section.memory()).sum();
        self.0.capacity() * size_of::<Vec<Option<Box<MapSection>>>>() + groups + sections
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(numbers: &[u32]) -> Sections {
        let mut sections = Sections::default();
        for number in numbers {
            *sections.entry(*number) = Some(Box::new(MapSection::new(1)));
        }
        sections
    }

    #[test]
    fn sections_come_in_order_from_where_one_asks() {
        let mut sections = with(&[0, 255, 256, 1000, (1 << 24) - 1]);
        let of = |sections: &Sections, from, to| sections.range(from..to).map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!(of(&sections, 0, u64::MAX), [0, 255, 256, 1000, (1 << 24) - 1]);
        assert_eq!(of(&sections, 1, 256), [255]);
        assert_eq!(of(&sections, 256, 1001), [256, 1000]);
        assert_eq!(of(&sections, 257, 1000), []);
        assert_eq!(sections.range_mut(255..257).map(|(number, _)| number).collect::<Vec<_>>(), [255, 256]);
        assert!(sections.get(1000).is_some() && sections.get(999).is_none() && sections.get(u32::MAX).is_none());
        assert!(sections.get_mut(256).is_some() && sections.get_mut(257).is_none());
    }

    #[test]
    fn one_section_far_out_takes_little_memory() {
        assert!(with(&[(1 << 24) - 1]).memory() < 4 << 20);
        assert_eq!(sections_of(0..0, 4), 0..0);
        assert_eq!(sections_of(15..17, 4), 0..2);
        assert_eq!(sections_of(16..32, 4), 1..2);
    }
}
