//! A unit as bytes, but for its blocks: what its last barrier left of it. See `format::unit` for how they lie.

use super::barrier::Barrier;
use super::conflicts::ReadSet;
use super::lists::UnitLists;
use super::ranges::Ranges;
use super::shadow::{ListShadow, Shadows};
use crate::disk::options::{UnitConflicts, UnitOptions, UnitView};
use crate::format::Cursor;
use crate::format::records::Compression;
use crate::format::unit::{UnitCut, UnitImage, UnitList, UnitNumber, UnitOperation, UnitStretch};
use crate::ordered::{Attributes, Op, Place};
use crate::types::{ListId, index, index64, len_u32, len_u64};

/// What an image says.
#[derive(Default)]
pub(super) struct Image {
    pub cookie: Vec<u8>,
    pub options: UnitOptions,
    pub until: u64,
    pub lists: Shadows,
    pub ordered: UnitLists,
    pub read: ReadSet,
}

/// An image has at most so many bytes: a length from outside is checked before it is used.
pub(super) const BYTES_MAX: u64 = 256 << 20;

const SIZE: u32 = 1;
const FLOOR: u32 = 2;

const VIEWS: [UnitView; 3] = [UnitView::Moving, UnitView::Frozen, UnitView::Committed];
const CONFLICTS: [UnitConflicts; 3] = [UnitConflicts::Allowed, UnitConflicts::Written, UnitConflicts::Read];

fn code<T: PartialEq>(all: &[T], one: &T) -> u8 {
    u8::try_from(all.iter().position(|other| other == one).expect("one of all")).expect("few")
}

/// The bytes of a unit.
pub(super) fn encode(
    cookie: &[u8],
    barrier: &Barrier,
    options: &UnitOptions,
    lists: &Shadows,
    ordered: Option<&UnitLists>,
    read: &ReadSet,
) -> Vec<u8> {
    let empty = UnitLists::default();
    let ordered = ordered.unwrap_or(&empty);
    let only_read = read.blocks.keys().filter(|list| lists.get(**list).is_none()).copied();
    let mut all: Vec<ListId> = lists.iter().map(|(list, _)| list).chain(only_read).collect();
    all.sort_unstable();
    let mut bytes = Vec::new();
    UnitImage {
        cookie: len_u32(cookie.len()),
        view: code(&VIEWS, &options.view),
        conflicts: code(&CONFLICTS, &options.conflicts),
        looked: u8::from(read.lists),
        lists: len_u32(all.len()),
        operations: len_u32(ordered.log.len()),
        numbers: len_u32(ordered.taken.len()),
        until: barrier.until,
        ..UnitImage::default()
    }
    .push_to(&mut bytes);
    bytes.extend_from_slice(cookie);
    let (none, unread) = (ListShadow::default(), Ranges::default());
    for list in all {
        let shadow = lists.get(list).unwrap_or(&none);
        let reads = read.blocks.get(&list).unwrap_or(&unread);
        let flags = if shadow.bytes.is_some() { SIZE } else { 0 } | if shadow.floor.is_some() { FLOOR } else { 0 };
        UnitList {
            list: list.0,
            flags,
            bytes: shadow.bytes.unwrap_or(0),
            floor: shadow.floor.unwrap_or(0),
            holes: len_u32(shadow.holes.len()),
            reads: len_u32(reads.len()),
            cuts: len_u32(shadow.cuts.len()),
            kept: shadow.kept.map_or(0, |own| own.0),
        }
        .push_to(&mut bytes);
        for (first, end) in shadow.holes.iter().chain(reads.iter()) {
            UnitStretch { first, end }.push_to(&mut bytes);
        }
        for (block, from) in &shadow.cuts {
            UnitCut { block: *block, from: len_u64(*from) }.push_to(&mut bytes);
        }
    }
    for op in &ordered.log {
        operation(op).push_to(&mut bytes);
    }
    for (table, number) in &ordered.taken {
        UnitNumber { table: table.0, number: *number }.push_to(&mut bytes);
    }
    bytes
}

fn operation(op: &Op) -> UnitOperation {
    let at = |place: Place<u32>| match place {
        Place::First => (0, 0),
        Place::Last => (1, 0),
        Place::After(after) => (2, after),
    };
    let made =
        |kind, list, what, (place, after)| UnitOperation { kind, place, list, what, after, ..Default::default() };
    match *op {
        Op::Insert { list, place, block } => made(1, list, block, at(place)),
        Op::Remove { list, block } => made(2, list, block, (0, 0)),
        Op::Move { from, first, last, to, place } => UnitOperation { last, to, ..made(3, from, first, at(place)) },
        Op::Create { list, place, attributes } => made(4, list, attributes.encode(), at(place)),
        Op::Delete { list } => made(5, list, 0, (0, 0)),
        Op::MoveList { list, place } => made(6, list, 0, at(place)),
    }
}

fn op(from: &UnitOperation) -> Option<Op> {
    let place = match from.place {
        0 => Place::First,
        1 => Place::Last,
        2 => Place::After(from.after),
        _ => return None,
    };
    let (list, what) = (from.list, from.what);
    Some(match from.kind {
        1 => Op::Insert { list, place, block: what },
        2 => Op::Remove { list, block: what },
        3 => Op::Move { from: list, first: what, last: from.last, to: from.to, place },
        4 => {
            let attributes = Attributes::decode(what);
            let sound = (6..=16).contains(&attributes.shift) && !attributes.dead;
            let known = Compression::from_code(what.to_le_bytes()[1]).is_some();
            Op::Create { list, place, attributes: Some(attributes).filter(|_| sound && known)? }
        }
        5 => Op::Delete { list },
        6 => Op::MoveList { list, place },
        _ => return None,
    })
}

/// Beyond any size in bytes, and any number of a block.
const NUMBER_MAX: u64 = 1 << 62;

fn number(found: u64) -> Option<u64> {
    Some(found).filter(|number| *number <= NUMBER_MAX)
}

fn stretches(cursor: &mut Cursor<'_>, count: u32) -> Option<Ranges> {
    let mut all = Ranges::default();
    for _ in 0..count {
        let UnitStretch { first, end } = UnitStretch::decode(cursor.take(UnitStretch::SIZE)?);
        all.insert(first, number(end).filter(|end| first < *end)?);
    }
    Some(all)
}

/// What bytes say. `None`: they are no image.
pub(super) fn decode(bytes: &[u8]) -> Option<Image> {
    let mut cursor = Cursor::new(bytes);
    let head = UnitImage::decode(cursor.take(UnitImage::SIZE)?);
    let mut image = Image {
        cookie: cursor.take(index(head.cookie))?.to_vec(),
        options: UnitOptions {
            view: *VIEWS.get(usize::from(head.view))?,
            conflicts: *CONFLICTS.get(usize::from(head.conflicts))?,
        },
        until: head.until,
        ..Image::default()
    };
    image.read.lists = head.looked != 0;
    for _ in 0..head.lists {
        let list = UnitList::decode(cursor.take(UnitList::SIZE)?);
        let shadow = image.lists.of(ListId(list.list));
        shadow.bytes = if list.flags & SIZE != 0 { Some(number(list.bytes)?) } else { None };
        shadow.floor = if list.flags & FLOOR != 0 { Some(number(list.floor)?) } else { None };
        shadow.kept = Some(ListId(list.kept)).filter(|own| own.0 != 0);
        shadow.holes = stretches(&mut cursor, list.holes)?;
        let reads = stretches(&mut cursor, list.reads)?;
        if !reads.is_empty() {
            image.read.blocks.insert(ListId(list.list), reads);
        }
        for _ in 0..list.cuts {
            let cut = UnitCut::decode(cursor.take(UnitCut::SIZE)?);
            shadow.cuts.insert(number(cut.block)?, Some(index64(cut.from)).filter(|from| *from < 1 << 16)?);
        }
    }
    for _ in 0..head.operations {
        image.ordered.log.push(op(&UnitOperation::decode(cursor.take(UnitOperation::SIZE)?))?);
    }
    for _ in 0..head.numbers {
        let number = UnitNumber::decode(cursor.take(UnitNumber::SIZE)?);
        image.ordered.taken.push((ListId(number.table), number.number));
    }
    image.ordered.count_again();
    Some(image)
}
