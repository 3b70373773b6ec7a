//! Making, finding, resizing and deleting volumes.

use super::options::{VolumeInfo, VolumeOptions};
use super::put::Again;
use super::space::Claim;
use super::{Core, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::{Form, ListMeta, ListState, NAME_BYTES_MAX, Record};
use crate::shape::Shape;
use crate::types::{BLOCK_BYTES_MIN, ListId, Lsn, SnapshotId, len_u64};
use crate::unit::Unit;
use crate::volume::Volume;
use std::sync::Arc;

/// Room for one record of a list.
pub(crate) const LIST_RECORD: u32 = 8 + 48 + 256;

/// The largest volume with blocks of this size.
pub(crate) fn most_bytes(shape: &Shape, block_bytes: u32) -> u64 {
    shape.blocks_max().saturating_mul(u64::from(block_bytes)).min(1 << 62)
}

/// Whether a volume of this size can be named block by block.
pub(crate) fn check_size(shape: &Shape, bytes: u64, block_bytes: u32) -> Result<()> {
    let most = most_bytes(shape, block_bytes);
    if bytes > most {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("a volume of {bytes} bytes is too large: at most {most} bytes in blocks of {block_bytes}"),
        ));
    }
    Ok(())
}

/// Names of volumes and snapshots are alike. `what`: which of them this is.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let invalid = |problem: &str| {
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{problem}: the name of {what} has 1 to {NAME_BYTES_MAX} bytes, none of them a control character"),
        ))
    };
    if name.is_empty() {
        return invalid("an empty name");
    }
    if name.len() > NAME_BYTES_MAX {
        return invalid("a name that is too long");
    }
    if name.chars().any(char::is_control) {
        return invalid("a name with control characters");
    }
    if name.contains('@') {
        return invalid("a name with an @, which stands before the name of a snapshot");
    }
    Ok(())
}

impl Inner {
    pub fn create_volume(&self, name: &str, options: &VolumeOptions) -> Result<ListId> {
        check_name("a volume", name)?;
        self.create_indexed(name, Form::Indexed, options)
    }

    pub fn create_indexed(&self, name: &str, form: Form, options: &VolumeOptions) -> Result<ListId> {
        let most = self.shape.block_bytes_max();
        if !options.block_bytes.is_power_of_two() || !(BLOCK_BYTES_MIN..=most).contains(&options.block_bytes) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a block size of {} bytes: expected a power of two from {BLOCK_BYTES_MIN} to {most}",
                    options.block_bytes
                ),
            ));
        }
        check_size(&self.shape, options.bytes, options.block_bytes)?;
        self.with_room(0, LIST_RECORD, Claim::Urgent, |core| {
            if form == Form::Indexed && core.state.names.contains_key(name) {
                return Err(Error::new(ErrorKind::Exists, format!("there is a volume named {name} already")));
            }
            if !core.promises(self.shape.list_charge()) {
                return Err(self.full(core, self.shape.list_charge()));
            }
            let list = ListId(core.state.next_list);
            core.write_record(&Record::List(ListMeta {
                block_shift: u8::try_from(options.block_bytes.ilog2()).expect("at most 16"),
                compression: options.compression,
                bytes: options.bytes,
                name: name.to_owned(),
                ..ListMeta::new(list, form)
            }));
            Ok(list)
        })?
    }

    pub fn find_volume(self: &Arc<Self>, name: &str) -> Result<Volume> {
        let core = self.core.lock();
        let list = core.state.names.get(name).and_then(|list| core.state.lists.get(list));
        let meta =
            &list.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no volume named {name}")))?.meta;
        Ok(Volume::new(Arc::clone(self), meta.list, &meta.name, meta.block_bytes(), meta.compression))
    }

    /// A volume as a snapshot sees it.
    pub fn find_volume_at(self: &Arc<Self>, snapshot: &str, name: &str) -> Result<Volume> {
        let core = self.core.lock();
        let id = SnapshotId(core.state.snapshot_named(snapshot)?.0);
        let found = core.state.volumes_at(id).find(|(_, meta)| meta.name == name);
        let (list, meta) = found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no volume named {name} in snapshot {snapshot}"))
        })?;
        Ok(Volume::at(Arc::clone(self), list, meta, id))
    }

    pub fn list_volumes(&self) -> Result<Vec<VolumeInfo>> {
        let metas: Vec<ListMeta> = {
            let core = self.core.lock();
            core.state
                .names
                .values()
                .filter_map(|list| core.state.lists.get(list))
                .map(|list| list.meta.clone())
                .collect()
        };
        let mut volumes = Vec::new();
        for meta in metas {
            volumes.push(VolumeInfo {
                mapped_blocks: self.mapped_blocks(meta.list)?,
                block_bytes: meta.block_bytes(),
                name: meta.name,
                list: meta.list,
                bytes: meta.bytes,
                compression: meta.compression,
            });
        }
        Ok(volumes)
    }

    /// Counts the stored blocks of a list, section by section.
    pub(super) fn mapped_blocks(&self, list: ListId) -> Result<u64> {
        self.fold_all();
        let (mut count, mut from) = (0, 0);
        while let Some(number) = self.section_from(list, from) {
            count += len_u64(self.section_blocks(list, number)?.len());
            from = number + 1;
        }
        Ok(count)
    }

    pub fn resize_volume(self: &Arc<Self>, name: &str, bytes: u64) -> Result<Lsn> {
        let volume = self.find_volume(name)?;
        let mut unit = Unit::simple(Arc::clone(self));
        unit.resize(&volume, bytes)?;
        unit.commit()
    }

    /// One record; the blocks are freed afterwards, in bounded steps.
    pub fn delete_volume(&self, name: &str) -> Result<Lsn> {
        self.delete_indexed(|core| {
            let list = core.state.names.get(name).and_then(|list| core.state.lists.get(list));
            list.map(|list| &list.meta)
                .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no volume named {name}")))
        })
    }

    pub fn delete_indexed(&self, find: impl Fn(&Core) -> Result<&ListMeta>) -> Result<Lsn> {
        let deleted = self.until_made(
            0,
            |_| LIST_RECORD,
            Claim::Urgent,
            |core| {
                let meta = find(core)?;
                if core.state.lacks_layer(meta.list) {
                    return Err(Again::Layer(meta.list));
                }
                // Also a deleted snapshot that still has a layer needs what is below (S3).
                let seen = core.state.versions.layers(meta.list, SnapshotId(0)).next().is_some();
                let state = if seen { ListState::Hidden } else { ListState::Draining };
                core.write_record(&Record::List(ListMeta { state, ..meta.clone() }));
                Ok(core.writer.lsn)
            },
            || Ok(()),
        )?;
        self.keeper.notify_all();
        if !self.options.background {
            while self.drain_step()? {}
        }
        Ok(deleted)
    }
}
