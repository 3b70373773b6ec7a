//! Scripts: the operations that a workload does on a disk, as data.
//!
//! A [`Script`] is a geometry, the options of the opening, a prelude whose crashes are not enumerated, and operations.
//! It is made from a [`ScriptId`] alone, so that a printed id replays it.

use crate::rng::{Rng, mix, narrow};
use crate::trace::Erased;
use lode::{UnitConflicts, UnitOptions, UnitView};
use lode_media::Geometry;
use std::fmt;

/// What written data looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Noise: cannot be compressed.
    Noise,
    /// One short pattern again and again: compresses well.
    Pattern,
    /// A part of each kind.
    Mixed,
    /// Zeros.
    Zeros,
}

/// Which volume, by its number: its name is [`volume_name`].
pub type VolumeNumber = u8;

/// Which of the units open at once.
pub type UnitNumber = u32;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes a volume.
    Create {
        /// Its number.
        volume: VolumeNumber,
        /// Its size.
        bytes: u64,
        /// The size of its blocks.
        block_bytes: u32,
        /// Whether with compression.
        compressed: bool,
    },
    /// Deletes a volume.
    Delete(VolumeNumber),
    /// Changes a volume's size.
    Resize(VolumeNumber, u64),
    /// Writes some bytes at an offset.
    Write(VolumeNumber, u64, u64, Fill),
    /// Discards some bytes from an offset on.
    Discard(VolumeNumber, u64, u64),
    /// Reads and compares some bytes from an offset on.
    Read(VolumeNumber, u64, u64),
    /// Begins a unit.
    Begin(UnitNumber),
    /// Writes in a unit.
    UnitWrite(UnitNumber, VolumeNumber, u64, u64, Fill),
    /// Discards whole blocks in a unit.
    UnitDiscard(UnitNumber, VolumeNumber, u64, u64),
    /// Changes a volume's size to whole blocks in a unit.
    UnitResize(UnitNumber, VolumeNumber, u64),
    /// Reads all of a volume in a unit and compares.
    UnitRead(UnitNumber, VolumeNumber),
    /// Commits a unit.
    Commit(UnitNumber),
    /// Commits a unit and flushes.
    CommitAndFlush(UnitNumber),
    /// Aborts a unit.
    Abort(UnitNumber),
    /// Drops a unit's handle.
    Drop(UnitNumber),
    /// Flushes everything to stable storage.
    Flush,
    /// Flushes everything as far as the death of the process needs.
    FlushProcess,
    /// Flushes up to the position this many changes ago.
    FlushUpTo(u8),
    /// One step of maintenance.
    Maintain,
    /// Maintenance until there is nothing to do.
    MaintainAll,
    /// Makes replay empty.
    Checkpoint,
    /// Closes and opens again.
    Reopen,
    /// Drops everything without closing, and opens again: the death of the process.
    Kill,
    /// Compares everything.
    ReadAll,
    /// Writes until the disk says that it is full.
    FillUp(VolumeNumber),
    /// Takes a snapshot; of one volume, or of all.
    TakeSnapshot(u8, Option<VolumeNumber>),
    /// Deletes a snapshot.
    DeleteSnapshot(u8),
    /// Asks what of a volume changed since a snapshot, and goes back to it.
    RollBack(u8, VolumeNumber),
    /// Something with ordered lists.
    Lists(ListDraw),
    /// A barrier of a unit.
    Barrier(UnitNumber),
    /// Makes the medium, and the disk, so many zones larger.
    Grow(u32),
    /// Something with streams.
    Stream(StreamDraw),
    /// Exchanges so many bytes from an offset of a volume on with those of another one, or with others of the same.
    Swap((VolumeNumber, u64), (VolumeNumber, u64), u64),
    /// Brings the blocks of a volume together; broken off after so many calls for progress.
    Recluster(VolumeNumber, u8),
    /// Reserves space for so many blocks of a size, under a number.
    Reserve(u8, u64, u32),
    /// A unit draws on a reservation for so many blocks, writes them into a volume from a block on, in so many writes,
    /// and commits.
    Spend {
        /// The reservation.
        reservation: u8,
        /// Into which volume.
        volume: VolumeNumber,
        /// Where it begins, in blocks of the volume.
        first: u64,
        /// How many blocks it draws.
        blocks: u64,
        /// How many of them one write has.
        each: u64,
    },
    /// Gives a reservation back.
    CancelReservation(u8),
    /// Something with schedules of snapshots.
    Schedules(ScheduleDraw),
}

/// An operation on ordered lists before it is known what is there: see `run::lists`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListDraw {
    /// In a unit, or by itself.
    pub unit: Option<UnitNumber>,
    /// What kind of operation.
    pub kind: u8,
    /// Which list, which blocks, which place: each modulo what there is.
    pub picks: [u16; 4],
}

/// An operation with streams, or with what came in one, before it is known what is there: see `run::streams`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamDraw {
    /// What kind of operation.
    pub kind: u8,
    /// Which volume, which snapshots, how: each modulo what there is.
    pub picks: [u16; 6],
}

/// An operation with schedules before it is known what is there: see `run::schedules`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleDraw {
    /// What kind of operation.
    pub kind: u8,
    /// Which schedule, how often, when.
    pub picks: [u16; 4],
}

/// The name of a volume.
pub fn volume_name(volume: VolumeNumber) -> String {
    format!("v{volume}")
}

/// The name of a snapshot.
pub fn snapshot_name(snapshot: u8) -> String {
    format!("s{snapshot}")
}

/// The label of a unit, if it has one.
pub fn unit_label(unit: UnitNumber) -> String {
    format!("u{unit}")
}

/// The unit with a label.
pub fn unit_number(label: &str) -> UnitNumber {
    label.trim_start_matches('u').parse().unwrap_or(UnitNumber::MAX)
}

/// Whether units of a script have labels, and how often one of them has a barrier behind an operation, in percent.
pub fn barriers(seed: u64) -> u64 {
    *Rng::new(mix(seed, BARRIERS_SEED)).pick(&[0, 0, 0, 10, 30])
}

/// So that the scripts that are pinned in tests have none.
const BARRIERS_SEED: u64 = 0x4241_0c31;

/// How a unit begins: in most scripts none has options.
pub fn unit_options(seed: u64, unit: UnitNumber) -> UnitOptions {
    let mut rng = Rng::new(mix(seed, OPTIONS_SEED));
    let percent = *rng.pick(&[0, 0, 0, 70]);
    let mut rng = Rng::new(mix(rng.word(), unit.into()));
    if !rng.percent(percent) {
        return UnitOptions::default();
    }
    let view = *rng.pick(&[UnitView::Moving, UnitView::Frozen, UnitView::Frozen, UnitView::Committed]);
    let conflicts = *rng.pick(&[UnitConflicts::Allowed, UnitConflicts::Written, UnitConflicts::Read]);
    UnitOptions { view, conflicts }
}

/// So that the scripts that are pinned in tests have none.
const OPTIONS_SEED: u64 = 0x4F50_0011;

/// The data that operation `op` of a script writes: no two operations write the same, except zeros.
pub fn data(seed: u64, op: usize, bytes: u64, fill: Fill) -> Vec<u8> {
    let mut data = vec![0; narrow(bytes)];
    let mut rng = Rng::new(mix(seed, crate::rng::wide(op)));
    match fill {
        Fill::Zeros => {}
        Fill::Noise => rng.fill(&mut data),
        Fill::Pattern => {
            let pattern = (rng.word() | 1).to_le_bytes();
            for (byte, from) in data.iter_mut().zip(pattern.iter().cycle()) {
                *byte = *from;
            }
        }
        Fill::Mixed => {
            let noise = data.len() / 3;
            rng.fill(&mut data[..noise]);
            let pattern = (rng.word() | 1).to_le_bytes();
            for (byte, from) in data[noise..].iter_mut().zip(pattern.iter().cycle()) {
                *byte = *from;
            }
        }
    }
    data
}

/// The options of an opening that a script draws.
#[derive(Clone, Copy, Debug)]
pub struct ScriptOptions {
    /// Memory of the block cache.
    pub cache_bytes: usize,
    /// The write buffer.
    pub write_buffer_bytes: usize,
    /// What a unit keeps in memory before it spills.
    pub unit_memory_bytes: usize,
    /// How much log recovery may have to read.
    pub checkpoint_window_bytes: Option<u64>,
    /// Whether the space of free zones is given back.
    pub discard: bool,
}

/// Everything that a run does.
#[derive(Clone, Debug)]
pub struct Script {
    /// What it was made from.
    pub id: ScriptId,
    /// The shape of the disk.
    pub geometry: Geometry,
    /// What erased zones read as while the script runs.
    pub erased: Erased,
    /// How the disk is opened.
    pub options: ScriptOptions,
    /// How many of `ops` only bring the disk into its start state.
    pub prelude: usize,
    /// The operations.
    pub ops: Vec<Op>,
}

impl Script {
    /// Whether the disk becomes larger in it.
    pub fn grows(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Grow(_)))
    }
}

/// Names a script: all of it follows from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptId {
    /// Operations drawn from a seed.
    Random(u64),
    /// Operations drawn from a seed, on a larger disk whose medium fails.
    Faults(u64),
    /// Clients in threads of their own, drawn from a seed. Does not happen twice alike.
    Concurrent(u64),
    /// Clients in threads of their own whose history is judged. Does not happen twice alike.
    History(u64),
    /// The n-th of the short scripts: every sequence of up to three core operations from every start state.
    Short(u64),
}

impl ScriptId {
    /// The seed of everything drawn along the script.
    pub fn seed(self) -> u64 {
        match self {
            ScriptId::Random(seed) => mix(seed, 1),
            ScriptId::Short(number) => mix(number, 2),
            ScriptId::Faults(seed) => mix(seed, 3),
            ScriptId::Concurrent(seed) => mix(seed, 4),
            ScriptId::History(seed) => mix(seed, 5),
        }
    }
}

impl fmt::Display for ScriptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScriptId::Random(seed) => write!(f, "r{seed}"),
            ScriptId::Short(number) => write!(f, "s{number}"),
            ScriptId::Faults(seed) => write!(f, "f{seed}"),
            ScriptId::Concurrent(seed) => write!(f, "c{seed}"),
            ScriptId::History(seed) => write!(f, "h{seed}"),
        }
    }
}

impl std::str::FromStr for ScriptId {
    type Err = String;
    fn from_str(words: &str) -> Result<Self, String> {
        let bad = || format!("{words} does not name a script");
        let number = words.get(1..).and_then(|rest| rest.parse().ok()).ok_or_else(bad)?;
        match words.get(..1) {
            Some("r") => Ok(ScriptId::Random(number)),
            Some("s") => Ok(ScriptId::Short(number)),
            Some("f") => Ok(ScriptId::Faults(number)),
            Some("c") => Ok(ScriptId::Concurrent(number)),
            Some("h") => Ok(ScriptId::History(number)),
            _ => Err(bad()),
        }
    }
}
