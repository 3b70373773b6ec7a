//! Indexed lists for a client that keeps files in them (*The Logical Disk*, section 4.1: one list for each file). Each is as
//! a volume is, but has a number only, which its client writes down.

use crate::disk::open::Disk;
use crate::disk::options::VolumeOptions;
use crate::disk::volumes::most_bytes;
use crate::disk::{Core, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::{Form, ListMeta, ListState};
use crate::types::{ListId, Lsn};
use crate::volume::Volume;
use std::ops::ControlFlow;
use std::sync::Arc;

impl Disk {
    /// Makes an indexed list for a client that keeps files in such lists (*The Logical Disk*, section 4.1: a list per file).
    /// It is as a volume is, but has its number only, which the client writes down, and is no volume for others. By the
    /// name, which may be empty and may be given twice, the client finds its first list ([`Disk::file_list_named`]).
    /// `bytes`: as much as is possible is a good choice, since only what is written takes space ([`Disk::file_list_bytes`]).
    /// Cost: one record; 1 KiB of what may be promised.
    pub fn create_file_list(&self, name: &str, options: &VolumeOptions) -> Result<Volume> {
        self.inner().create_file_list(name, options)
    }

    /// A list that was made by [`Disk::create_file_list`]; also one that was deleted, as long as a unit or a snapshot sees it.
    /// `NotFound`.
    pub fn file_list(&self, list: ListId) -> Result<Volume> {
        self.inner().file_list(list)
    }

    /// The oldest of those lists with a name. Cost: looks at all lists.
    pub fn file_list_named(&self, name: &str) -> Result<Option<Volume>> {
        self.inner().file_list_named(name)
    }

    /// The numbers of all those lists.
    pub fn file_lists(&self) -> Vec<ListId> {
        self.inner().file_lists()
    }

    /// [`Disk::recluster`] of such a list. `NotFound`, `Full`.
    pub fn recluster_file_list(
        &self,
        list: ListId,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let list = self.file_list(list)?.list();
        self.inner().recluster(list, progress)
    }

    /// The most bytes that a list with blocks of this size can have.
    pub fn file_list_bytes(&self, block_bytes: u32) -> u64 {
        most_bytes(&self.inner().shape, block_bytes)
    }

    /// Deletes one. One record; its blocks are freed afterwards, in bounded steps. `NotFound`.
    pub fn delete_file_list(&self, list: ListId) -> Result<Lsn> {
        self.inner().delete_file_list(list)
    }
}

impl Inner {
    pub fn create_file_list(self: &Arc<Self>, name: &str, options: &VolumeOptions) -> Result<Volume> {
        let list = self.create_indexed(name, Form::File, options)?;
        self.file_list(list)
    }

    pub fn file_list(self: &Arc<Self>, list: ListId) -> Result<Volume> {
        let core = self.core.lock();
        // One that was deleted may still be seen by a unit.
        let hidden = core.state.lists.get(&list).map(|list| &list.meta);
        let hidden = hidden.filter(|meta| meta.form == Form::File && meta.state == ListState::Hidden);
        let meta = hidden.map_or_else(|| core.file_list(list), Ok)?;
        Ok(Volume::new(Arc::clone(self), list, &core.state.label(list), meta.block_bytes(), meta.compression))
    }

    /// The oldest with this name.
    pub fn file_list_named(self: &Arc<Self>, name: &str) -> Result<Option<Volume>> {
        let found = {
            let core = self.core.lock();
            let mut metas = core.state.lists.values().map(|list| &list.meta);
            metas.find(|meta| meta.is_file_list() && meta.name == name).map(|meta| meta.list)
        };
        found.map(|list| self.file_list(list)).transpose()
    }

    pub fn file_lists(&self) -> Vec<ListId> {
        let core = self.core.lock();
        let metas = core.state.lists.values().map(|list| &list.meta);
        metas.filter(|meta| meta.is_file_list()).map(|meta| meta.list).collect()
    }

    pub fn delete_file_list(&self, list: ListId) -> Result<Lsn> {
        self.delete_indexed(|core| core.file_list(list))
    }
}

impl Core {
    fn file_list(&self, list: ListId) -> Result<&ListMeta> {
        let meta = self.state.lists.get(&list).map(|list| &list.meta).filter(|meta| meta.is_file_list());
        meta.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no list {} of files", list.0)))
    }
}
