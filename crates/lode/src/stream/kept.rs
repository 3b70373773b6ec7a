//! What a disk has of streams that were cut: units at their last barrier, each with how far it came and of what stream.

use super::{StreamInfo, reader, writer};
use crate::disk::open::Disk;
use crate::disk::units::UnitState;
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::NAME_BYTES_MAX;
use crate::format::stream::{KEPT_MAGIC, StreamKept, Sum};
use crate::types::{ListId, UnitId, index, len_u32};
use crate::unit::COOKIE_BYTES_MAX;

/// What a volume is called, behind its name, until all of it is there; and the unit that takes it in.
pub(super) const RECEIVING: &str = ".receiving";

/// The label of the unit that receives a volume, and the name of a new one until the commit.
pub(super) fn label_of(volume: &str) -> Result<String> {
    let label = format!("{volume}{RECEIVING}");
    if label.len() > NAME_BYTES_MAX {
        let most = NAME_BYTES_MAX - RECEIVING.len();
        let words = format!("a name of {} bytes: expected at most {most} to receive a volume", volume.len());
        return Err(Error::new(ErrorKind::InvalidArgument, words));
    }
    Ok(label)
}

/// How far a stream was received at a barrier.
pub(super) struct Kept {
    pub info: StreamInfo,
    pub position: u64,
    pub data: u64,
    /// What it is written into.
    pub list: ListId,
    /// The name of the snapshot that is to be taken.
    pub snapshot: String,
}

impl Kept {
    /// The cookie that says so.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        StreamKept {
            magic: KEPT_MAGIC,
            position: self.position,
            data: self.data,
            list: self.list.0,
            snapshot_name: len_u32(self.snapshot.len()),
        }
        .push_to(&mut bytes);
        bytes.extend(writer::head_of(&self.info));
        bytes.extend_from_slice(self.snapshot.as_bytes());
        bytes
    }

    /// What the cookie of a unit says. None: the unit receives no stream.
    pub fn decode(unit: &str, cookie: &[u8]) -> Result<Option<Kept>> {
        if cookie.len() <= COOKIE_BYTES_MAX {
            return Ok(None);
        }
        let wrong = |found: String| Error::corrupt(format!("unit {unit}"), "how far it has received a stream", found);
        let (kept, mut rest) = cookie.split_at(StreamKept::SIZE);
        let kept = StreamKept::decode(kept);
        if kept.magic != KEPT_MAGIC {
            return Err(wrong(format!("{:#018x}", kept.magic)));
        }
        let info = reader::read_head(&mut rest, &mut Sum::new()).map_err(|error| wrong(error.to_string()))?;
        let name = String::from_utf8(rest.to_vec()).ok().filter(|name| name.len() == index(kept.snapshot_name));
        match name {
            Some(snapshot) if kept.position <= info.bytes && info.position == 0 => {
                let StreamKept { position, data, list, .. } = kept;
                Ok(Some(Kept { info, position, data, list: ListId(list), snapshot }))
            }
            _ => {
                Err(wrong(format!("position {} of {}, and a name of {} bytes", kept.position, info.bytes, rest.len())))
            }
        }
    }
}

/// A stream that was received in part, as the last barrier of its unit left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveInfo {
    /// The unit that takes it in.
    pub unit: UnitId,
    /// The volume that is changed by the commit, or made.
    pub volume: String,
    /// The snapshot that is to be taken.
    pub snapshot: String,
    /// What the head of the stream says, as it is at position 0.
    pub info: StreamInfo,
    /// Everything before this place in the volume is there: a stream that goes on begins here, or before.
    pub position: u64,
    /// Bytes that the stream has brought.
    pub data: u64,
    /// Bytes of blocks that the disk keeps for it.
    pub bytes: u64,
    /// When it began, as whoever received it said, in nanoseconds since 1970.
    pub made: u64,
    /// Whether somebody receives it just now.
    pub state: UnitState,
}

impl Disk {
    /// Streams that were received in part and are kept, oldest first: of those that somebody receives just now, what is
    /// kept so far. What is damaged of one shows in [`Disk::units`]. Cost: that of [`Disk::units`].
    pub fn receives(&self) -> Result<Vec<ReceiveInfo>> {
        let mut found = Vec::new();
        for unit in self.units()? {
            let Ok(Some(kept)) = Kept::decode(&unit.label, &unit.cookie) else { continue };
            found.push(ReceiveInfo {
                unit: unit.id,
                volume: unit.label.strip_suffix(RECEIVING).unwrap_or(&unit.label).to_owned(),
                snapshot: kept.snapshot,
                info: kept.info,
                position: kept.position,
                data: kept.data,
                bytes: unit.bytes,
                made: unit.made,
                state: unit.state,
            });
        }
        Ok(found)
    }

    /// Drops what was received of a volume, as if it had never been, and the empty volume that stands for a new one.
    /// `NotFound`: there is nothing; `Exists`: somebody receives it just now.
    pub fn drop_receive(&self, volume: &str) -> Result<()> {
        drop(self.inner().writable()?);
        let label = label_of(volume)?;
        let none = || Error::new(ErrorKind::NotFound, format!("nothing is kept of a stream to {volume}"));
        let unit = match self.unit_labelled(&label) {
            Ok(unit) => unit,
            Err(_) => return if delete_empty(self, &label)? { Ok(()) } else { Err(none()) },
        };
        let unit = match self.inner().resume_unit(unit) {
            // Whether it was for a new volume is not known. If it was, the next one who makes it deletes what stands for it.
            Err(error) if error.kind() == ErrorKind::Corrupt => return self.abort_unit(unit),
            unit => unit?,
        };
        match Kept::decode(&label, unit.cookie()) {
            Ok(None) => return Err(none()), // It is a client's, and kept by its label.
            Ok(Some(kept)) if kept.info.base.is_none() => drop(delete_empty(self, &label)?),
            _ => {}
        }
        unit.abort();
        Ok(())
    }
}

/// Deletes a volume without a byte. False: there is none of this name.
pub(super) fn delete_empty(disk: &Disk, name: &str) -> Result<bool> {
    let is_empty = {
        let core = disk.inner().core.lock();
        let list = core.state.names.get(name).and_then(|list| core.state.lists.get(list));
        list.is_some_and(|list| list.meta.bytes == 0)
    };
    if is_empty {
        disk.delete_volume(name)?;
    }
    Ok(is_empty)
}
