//! The records of the stream: absolute, self-contained changes of the state.
//!
//! Each begins with its kind and its length, so that a reader of this version finds the next one. A record names the
//! new place, and the old place that it frees, so that applying it to one table reads only that record and that table.

pub use super::kinds::Compression;
pub(crate) use super::kinds::{Form, ListState};
use super::{Cursor, record};
use crate::types::{Kind, ListId, Location, SnapshotId, UnitId, len_u32, len_u64};

record! {
    /// What each record of the stream begins with.
    RecordHead: 8 {
        /// 1 put, 2 discard, 3 list, 4 list gone, 5 data, 6 commit, 7 zone opened, 8 zone freed.
        0 kind: u8,
        /// Zero.
        1 reserved: u8,
        /// Zero.
        2 reserved_b: u16,
        /// Bytes of the record, this head included.
        4 length: u32,
    }
}

record! {
    /// Put: blocks `first..first+count` of the list are now at `place` and the places that follow it in steps of one
    /// block; no place: the one block is a hole now. Followed by one PutEntry for each block.
    Put: 24 {
        /// The list.
        0 list: u32,
        /// How many blocks.
        4 count: u32,
        /// The first block.
        8 first: u64,
        /// Where the first one lies: zone 22 bits, offset / 16 24 bits, stored length - 1 16 bits, kind 2 bits (0 raw,
        /// what it lacks of a block being zeros; 1 compressed: a Zstandard frame if it begins with the number of one, else lz4). Of kind 2, in tables of ordered lists: the number before 31 bits, the number behind 31 bits. Of
        /// kind 3, in a layer: a hole.
        16 place: u64,
    }
}

record! {
    /// One block of a Put.
    PutEntry: 12 {
        /// Where it lay before: freed. Zero: it was a hole.
        0 old: u64,
        /// CRC-32C of its stored bytes; of kind 2 what else the table holds.
        8 checksum: u32,
    }
}

record! {
    /// Discard: blocks `first..end` of the list are holes now. Followed by one Freed for each zone that held some.
    Discard: 24 {
        /// The list.
        0 list: u32,
        /// How many Freed follow.
        4 freed: u32,
        /// The first block.
        8 first: u64,
        /// The block behind the last.
        16 end: u64,
    }
}

record! {
    /// What a discard frees in one zone.
    Freed: 12 {
        /// The zone.
        0 zone: u32,
        /// How many stored blocks.
        4 blocks: u32,
        /// Their bytes.
        8 bytes: u32,
    }
}

record! {
    /// List: everything about a list but its blocks; or a snapshot. Followed by its name, by the numbers of the
    /// lists that a snapshot is of, four bytes each (none: of all that are older), and, of a snapshot that came in a
    /// stream, by the id of the disk where it was taken, 16 bytes.
    List: 48 {
        /// The list.
        0 list: u32,
        /// Block size: 2 to this power.
        4 block_shift: u8,
        /// 0 none, 1 lz4, 2 lz4 once it is moved, 3 Zstandard once it is moved.
        5 compression: u8,
        /// 0 there, 1 deleted and being drained, 2 deleted and seen by snapshots, 3 layer, 4 snapshot, 5 deleted
        /// snapshot.
        6 state: u8,
        /// 0 indexed, 1 table of ordered lists, 2 table of the blocks of a pool, 3 pool of blocks, 4 shadow, 5 unit,
        /// 6 schedule of snapshots, 7 list of files.
        7 form: u8,
        /// Its size in bytes; a unit: bytes of its image, none before its first barrier is whole.
        8 bytes: u64,
        /// Bytes of the name.
        16 name: u32,
        /// A snapshot: of how many lists.
        20 members: u32,
        /// A layer or a shadow: the list whose blocks it keeps. A unit: how many rows of ordered lists it may change. A
        /// snapshot that came in a stream: the list it was taken of, there.
        24 parent: u32,
        /// A layer: the snapshot that sees them. A unit: the snapshot that it sees, or by which it finds conflicts. A
        /// snapshot that came in a stream: its number there; else zero.
        28 snapshot: u32,
        /// A snapshot or unit: when it was taken or begun, as its maker says, in nanoseconds since 1970. A shadow: its
        /// unit. A schedule: the time from one snapshot to the next, in nanoseconds.
        32 made: u64,
        /// A layer: what it does not have from this block on was a hole. A shadow: it has at most so many blocks. A
        /// unit: its number. A schedule: how many snapshots are kept. A
        /// snapshot: the schedule that took it, if one did.
        40 cut: u64,
    }
}

record! {
    /// List gone: the list and all its blocks are no more.
    ListGone: 8 {
        /// The list.
        0 list: u32,
        /// Zero.
        4 reserved: u32,
    }
}

record! {
    /// Data: block data in this batch whose visibility comes with a later record. Followed by `count` checksums.
    /// Changes nothing; it tells the cleaner whose bytes these are.
    Data: 32 {
        /// The list.
        0 list: u32,
        /// How many blocks.
        4 count: u32,
        /// The first block.
        8 first: u64,
        /// Where it lies; the others follow in steps of one block.
        16 place: u64,
        /// The unit that wrote it; zero: moved by the cleaner.
        24 unit: u64,
    }
}

record! {
    /// Commit: the unit whose changes stand right before this record is committed. Written for a unit that has spilled
    /// or needs several batches; what another one did stands in one batch and counts with that.
    Commit: 16 {
        /// The unit.
        0 unit: u64,
        /// How many blocks it changed.
        8 blocks: u64,
    }
}

record! {
    /// Zone opened: the zone is filled by a stream other than the record stream from here on.
    ZoneOpened: 16 {
        /// The zone.
        0 zone: u32,
        /// 1 moved blocks, 2 and 3 the two copies of tables.
        4 stream: u32,
        /// The segment.
        8 segment: u64,
    }
}

record! {
    /// Zone freed: nothing in the zone is alive; it may be erased.
    ZoneFreed: 16 {
        /// The zone.
        0 zone: u32,
        /// Zero.
        4 reserved: u32,
        /// The segment that it held.
        8 segment: u64,
    }
}

/// One record, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Put { list: ListId, first: u64, place: Location, entries: Vec<(Location, u32)> },
    Discard { list: ListId, first: u64, end: u64, freed: Vec<Freed> },
    List(ListMeta),
    ListGone { list: ListId },
    Data { list: ListId, first: u64, place: Location, checksums: Vec<u32>, unit: UnitId },
    Commit { unit: UnitId, blocks: u64 },
    ZoneOpened { zone: u32, stream: u32, segment: u64 },
    ZoneFreed { zone: u32, segment: u64 },
}

/// Everything about a list but its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListMeta {
    pub list: ListId,
    pub block_shift: u8,
    pub compression: Compression,
    pub state: ListState,
    pub form: Form,
    pub bytes: u64,
    pub name: String,
    /// Of a layer: the list whose blocks it keeps, and the snapshot that sees them.
    pub parent: ListId,
    pub snapshot: SnapshotId,
    /// Of a layer: the list ended here at some time before the next layer, so what is not in the layer was a hole.
    pub cut: u64,
    /// Of a snapshot: when it was taken, and the lists that it is of; none: all that are older.
    pub made: u64,
    pub members: Vec<ListId>,
    /// Of a snapshot that came in a stream.
    pub origin: Option<Origin>,
}

/// Where a snapshot was taken that came in a stream: it is of one list, and was of this one there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub disk: u128,
    pub list: ListId,
    pub snapshot: SnapshotId,
}

/// Names are shorter than this many bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

impl ListMeta {
    /// One that is there, of 4 KiB blocks, and has nothing: most kinds need little more.
    pub fn new(list: ListId, form: Form) -> ListMeta {
        ListMeta {
            list,
            block_shift: 12,
            compression: Compression::None,
            state: ListState::There,
            form,
            bytes: 0,
            name: String::new(),
            parent: ListId(0),
            snapshot: SnapshotId(0),
            cut: 0,
            made: 0,
            members: Vec::new(),
            origin: None,
        }
    }

    /// There for users to name.
    pub fn is_volume(&self) -> bool {
        self.state == ListState::There && self.form == Form::Indexed
    }

    /// There for a client that keeps files in it.
    pub fn is_file_list(&self) -> bool {
        self.state == ListState::There && self.form == Form::File
    }

    pub fn block_bytes(&self) -> u32 {
        1 << self.block_shift
    }

    pub fn blocks(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.block_bytes()))
    }

    pub fn encode(&self, into: &mut Vec<u8>) {
        List {
            list: self.list.0,
            block_shift: self.block_shift,
            compression: self.compression.code(),
            state: u8::try_from(ListState::ALL.iter().position(|state| *state == self.state).expect("one of all"))
                .expect("six states"),
            form: u8::try_from(Form::ALL.iter().position(|form| *form == self.form).expect("one of all"))
                .expect("eight forms"),
            bytes: self.bytes,
            name: len_u32(self.name.len()),
            members: len_u32(self.members.len()),
            parent: self.origin.map_or(self.parent, |origin| origin.list).0,
            snapshot: self.origin.map_or(self.snapshot, |origin| origin.snapshot).0,
            made: self.made,
            cut: self.cut,
        }
        .push_to(into);
        into.extend_from_slice(self.name.as_bytes());
        for member in &self.members {
            into.extend_from_slice(&member.0.to_le_bytes());
        }
        if let Some(origin) = self.origin {
            into.extend_from_slice(&origin.disk.to_le_bytes());
        }
    }

    pub fn decode(cursor: &mut Cursor<'_>) -> Option<ListMeta> {
        let fixed = List::decode(cursor.take(List::SIZE)?);
        let name = cursor.take(usize::try_from(fixed.name).ok().filter(|&len| len <= NAME_BYTES_MAX)?)?;
        if !(6..=16).contains(&fixed.block_shift) || fixed.list == u32::MAX {
            return None;
        }
        let mut members = Vec::new();
        for _ in 0..fixed.members {
            members.push(ListId(cursor.int()?));
        }
        let state = *ListState::ALL.get(usize::from(fixed.state))?;
        let (mut parent, mut snapshot, mut origin) = (ListId(fixed.parent), SnapshotId(fixed.snapshot), None);
        if matches!(state, ListState::Snapshot | ListState::Leaving) && snapshot != SnapshotId(0) {
            origin = Some(Origin { disk: cursor.int()?, list: parent, snapshot });
            (parent, snapshot) = Default::default();
        }
        Some(ListMeta {
            list: ListId(fixed.list),
            block_shift: fixed.block_shift,
            compression: Compression::from_code(fixed.compression)?,
            state,
            form: *Form::ALL.get(usize::from(fixed.form))?,
            bytes: fixed.bytes,
            name: std::str::from_utf8(name).ok()?.to_owned(),
            parent,
            snapshot,
            cut: fixed.cut,
            made: fixed.made,
            members,
            origin,
        })
    }
}

fn begin(kind: u8, into: &mut Vec<u8>) -> usize {
    let at = into.len();
    RecordHead { kind, ..RecordHead::default() }.push_to(into);
    at
}

fn finish(at: usize, into: &mut [u8]) {
    let length = len_u32(into.len() - at);
    into[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
}

/// Bytes that a Put of `count` blocks takes.
pub(crate) fn put_bytes(count: usize) -> u32 {
    len_u32(RecordHead::SIZE + Put::SIZE + count * PutEntry::SIZE)
}

/// Bytes that a Data of `count` blocks takes.
pub(crate) fn data_bytes(count: usize) -> u32 {
    len_u32(RecordHead::SIZE + Data::SIZE + count * 4)
}

/// Appends a Put: the hot path, without a [`Record`] in between.
pub(crate) fn encode_put(list: ListId, first: u64, place: Location, entries: &[(Location, u32)], into: &mut Vec<u8>) {
    let at = begin(1, into);
    Put { list: list.0, count: len_u32(entries.len()), first, place: place.0 }.push_to(into);
    for &(old, checksum) in entries {
        PutEntry { old: old.0, checksum }.push_to(into);
    }
    finish(at, into);
}

/// Appends a Put of one block: the hottest path of all.
pub(crate) fn encode_one_put(
    list: ListId,
    block: u64,
    place: Location,
    old: Location,
    checksum: u32,
    into: &mut Vec<u8>,
) {
    const BYTES: usize = RecordHead::SIZE + Put::SIZE + PutEntry::SIZE;
    let mut bytes = [0; BYTES];
    RecordHead { kind: 1, length: len_u32(BYTES), ..RecordHead::default() }.encode(&mut bytes[..8]);
    Put { list: list.0, count: 1, first: block, place: place.0 }.encode(&mut bytes[8..32]);
    PutEntry { old: old.0, checksum }.encode(&mut bytes[32..]);
    into.extend_from_slice(&bytes);
}

/// Appends a Data.
pub(crate) fn encode_data(
    list: ListId,
    first: u64,
    place: Location,
    checksums: &[u32],
    unit: UnitId,
    into: &mut Vec<u8>,
) {
    let at = begin(5, into);
    Data { list: list.0, count: len_u32(checksums.len()), first, place: place.0, unit: unit.0 }.push_to(into);
    for checksum in checksums {
        into.extend_from_slice(&checksum.to_le_bytes());
    }
    finish(at, into);
}

impl Record {
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Record::Put { list, first, place, entries } => encode_put(*list, *first, *place, entries, into),
            Record::Data { list, first, place, checksums, unit } => {
                encode_data(*list, *first, *place, checksums, *unit, into)
            }
            Record::Discard { list, first, end, freed } => {
                let at = begin(2, into);
                Discard { list: list.0, freed: len_u32(freed.len()), first: *first, end: *end }.push_to(into);
                for freed in freed {
                    freed.push_to(into);
                }
                finish(at, into);
            }
            Record::List(meta) => {
                let at = begin(3, into);
                meta.encode(into);
                finish(at, into);
            }
            Record::ListGone { list } => {
                let at = begin(4, into);
                ListGone { list: list.0, reserved: 0 }.push_to(into);
                finish(at, into);
            }
            Record::Commit { unit, blocks } => {
                let at = begin(6, into);
                Commit { unit: unit.0, blocks: *blocks }.push_to(into);
                finish(at, into);
            }
            Record::ZoneOpened { zone, stream, segment } => {
                let at = begin(7, into);
                ZoneOpened { zone: *zone, stream: *stream, segment: *segment }.push_to(into);
                finish(at, into);
            }
            Record::ZoneFreed { zone, segment } => {
                let at = begin(8, into);
                ZoneFreed { zone: *zone, reserved: 0, segment: *segment }.push_to(into);
                finish(at, into);
            }
        }
    }

    /// The next record, or `None` if the bytes are none of this version.
    pub fn decode(cursor: &mut Cursor<'_>) -> Option<Record> {
        let head = RecordHead::decode(cursor.take(RecordHead::SIZE)?);
        let body = usize::try_from(head.length).ok()?.checked_sub(RecordHead::SIZE)?;
        let mut body = Cursor::new(cursor.take(body)?);
        let record = match head.kind {
            1 => {
                let put = Put::decode(body.take(Put::SIZE)?);
                let count = body.left() / PutEntry::SIZE;
                if count == 0 || len_u64(count) != u64::from(put.count) {
                    return None;
                }
                let mut entries = Vec::with_capacity(count);
                for _ in 0..count {
                    let entry = PutEntry::decode(body.take(PutEntry::SIZE)?);
                    entries.push((Location(entry.old), entry.checksum));
                }
                put.first.checked_add(len_u64(count))?;
                Record::Put { list: ListId(put.list), first: put.first, place: Location(put.place), entries }
            }
            2 => {
                let discard = Discard::decode(body.take(Discard::SIZE)?);
                let count = body.left() / Freed::SIZE;
                if len_u64(count) != u64::from(discard.freed) || discard.first > discard.end {
                    return None;
                }
                let mut freed = Vec::with_capacity(count);
                for _ in 0..count {
                    freed.push(Freed::decode(body.take(Freed::SIZE)?));
                }
                Record::Discard { list: ListId(discard.list), first: discard.first, end: discard.end, freed }
            }
            3 => Record::List(ListMeta::decode(&mut body)?),
            4 => Record::ListGone { list: ListId(ListGone::decode(body.take(ListGone::SIZE)?).list) },
            5 => {
                let data = Data::decode(body.take(Data::SIZE)?);
                let count = body.left() / 4;
                if count == 0 || len_u64(count) != u64::from(data.count) {
                    return None;
                }
                let mut checksums = Vec::with_capacity(count);
                for _ in 0..count {
                    checksums.push(body.int()?);
                }
                data.first.checked_add(len_u64(count))?;
                Record::Data {
                    list: ListId(data.list),
                    first: data.first,
                    place: Location(data.place),
                    checksums,
                    unit: UnitId(data.unit),
                }
            }
            6 => {
                let commit = Commit::decode(body.take(Commit::SIZE)?);
                Record::Commit { unit: UnitId(commit.unit), blocks: commit.blocks }
            }
            7 => {
                let opened = ZoneOpened::decode(body.take(ZoneOpened::SIZE)?);
                Record::ZoneOpened { zone: opened.zone, stream: opened.stream, segment: opened.segment }
            }
            8 => {
                let freed = ZoneFreed::decode(body.take(ZoneFreed::SIZE)?);
                Record::ZoneFreed { zone: freed.zone, segment: freed.segment }
            }
            _ => return None,
        };
        body.is_empty().then_some(record)
    }
}

/// Whether every place of a run of `count` blocks from `place` lies within a zone of this size, in a kind that is
/// known.
pub(crate) fn run_fits(place: Location, count: usize, zones: u32, zone_bytes: u32) -> bool {
    let end = u64::from(place.offset()) + u64::from(place.footprint()) * len_u64(count);
    !place.is_none()
        && place.zone() < zones
        && end <= u64::from(zone_bytes)
        && matches!(place.kind(), Some(Kind::Raw | Kind::Packed))
}
