//! Which lists hold the tables and the blocks of ordered lists. It follows from the lists themselves.

use crate::format::records::{Form, ListMeta, ListState};
use crate::types::ListId;
use std::collections::BTreeMap;

/// The blocks of one size, of all ordered lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pool {
    /// A row for each block.
    pub table: ListId,
    /// The blocks themselves.
    pub blocks: ListId,
}

/// See the file's head. Number zero: it is not made yet.
#[derive(Default)]
pub(crate) struct Tables {
    /// Two rows for each ordered list.
    pub lists: ListId,
    pools: BTreeMap<u8, Pool>,
    /// The pool's table, by the list of its blocks.
    by_blocks: BTreeMap<ListId, ListId>,
}

impl Tables {
    pub fn note(&mut self, meta: &ListMeta) {
        if meta.state != ListState::There {
            return;
        }
        match meta.form {
            Form::Indexed | Form::File | Form::Shadow | Form::Unit | Form::Schedule => {}
            Form::Lists => self.lists = meta.list,
            Form::Blocks => self.pools.entry(meta.block_shift).or_default().table = meta.list,
            Form::Pool => self.pools.entry(meta.block_shift).or_default().blocks = meta.list,
        }
        if let Some(pool) = self.pools.get(&meta.block_shift) {
            self.by_blocks.insert(pool.blocks, pool.table);
        }
    }

    /// The pool of blocks of 2 to the power of `shift` bytes, if it is made.
    pub fn pool(&self, shift: u8) -> Option<Pool> {
        self.pools.get(&shift).copied().filter(|pool| pool.table != ListId(0) && pool.blocks != ListId(0))
    }

    /// The same, also if only a part of it is made.
    pub fn any_pool(&self, shift: u8) -> Pool {
        self.pools.get(&shift).copied().unwrap_or_default()
    }

    /// The pools, the smallest blocks first.
    pub fn pools(&self) -> impl Iterator<Item = (u8, Pool)> + '_ {
        self.pools.keys().filter_map(|shift| Some((*shift, self.pool(*shift)?)))
    }

    /// The table of the pool whose blocks are in `list`.
    pub fn table_of(&self, list: ListId) -> Option<ListId> {
        self.by_blocks.get(&list).copied()
    }
}
