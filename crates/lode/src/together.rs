//! Blocks of several lists in one step, all of them known at once, as an operation of a file system is: as a unit of them,
//! without what a unit holds for what may still come. One batch, one hold of the lock.

use crate::disk::Inner;
use crate::disk::open::Disk;
use crate::disk::put::NewBlock;
use crate::error::{Error, ErrorKind, Result};
use crate::types::{GRANULE, ListId, Lsn, index, len_u64};
use crate::volume::Volume;
use smallvec::SmallVec;

/// A block that is to be this.
#[derive(Clone, Copy)]
pub struct Whole<'a> {
    /// The volume, or list of files.
    pub volume: &'a Volume,
    /// The number of the block.
    pub block: u64,
    /// What it begins with. Behind it are zeros, to the end of the block.
    pub bytes: &'a [u8],
}

impl Whole<'_> {
    fn list(&self) -> ListId {
        self.volume.list()
    }

    /// What is stored of it has whole granules, and something.
    fn padded(&self) -> Option<Vec<u8>> {
        let granule = index(GRANULE);
        let len = self.bytes.len().max(1).next_multiple_of(granule).min(index(self.volume.block_bytes()));
        (len != self.bytes.len()).then(|| {
            let mut padded = Vec::with_capacity(len);
            padded.extend_from_slice(self.bytes);
            padded.resize(len, 0);
            padded
        })
    }
}

impl Disk {
    /// Blocks are to be these from now on, all at one point of the merged stream: after a crash all of them or none. No block
    /// is named twice. Cost: a record for each. Gives back a position to flush up to. `Full`, `NotFound`, `OutOfRange`,
    /// `ReadOnly`, `InvalidArgument`.
    pub fn write_together(&self, blocks: &[Whole<'_>]) -> Result<Lsn> {
        let inner = self.inner();
        let shape = &inner.shape;
        let mut bytes = 0;
        for (n, whole) in blocks.iter().enumerate() {
            whole.volume.belongs_to(inner)?;
            whole.volume.changeable()?;
            let most = whole.volume.block_bytes();
            if whole.bytes.len() > index(most) {
                let what = format!("{} bytes for a block of {most}", whole.bytes.len());
                return Err(Error::new(ErrorKind::InvalidArgument, what));
            }
            if blocks[..n].iter().any(|other| (other.list(), other.block) == (whole.list(), whole.block)) {
                let what = format!("block {} of {} twice", whole.block, whole.volume.label());
                return Err(Error::new(ErrorKind::InvalidArgument, what));
            }
            bytes += len_u64(whole.bytes.len()) + u64::from(GRANULE);
        }
        let few = len_u64(blocks.len()) <= u64::from(shape.direct_blocks) && bytes <= u64::from(shape.direct_bytes);
        if !few || blocks.iter().any(|whole| whole.volume.compression().is_hot()) {
            return self.write_as_unit(blocks);
        }
        inner.put_together(blocks)
    }

    fn write_as_unit(&self, blocks: &[Whole<'_>]) -> Result<Lsn> {
        let mut unit = self.begin()?;
        let mut all = Vec::new();
        for whole in blocks {
            let size = whole.volume.block_bytes();
            all.clear();
            all.extend_from_slice(whole.bytes);
            all.resize(index(size), 0);
            let offset = whole.block.saturating_mul(u64::from(size));
            // The last block of a volume may be shorter.
            let len = self.bytes_there(whole, offset)?.min(all.len());
            unit.write_at(whole.volume, offset, &all[..len])?;
        }
        unit.commit()
    }

    fn bytes_there(&self, whole: &Whole<'_>, offset: u64) -> Result<usize> {
        Ok(usize::try_from(whole.volume.size()?.saturating_sub(offset)).unwrap_or(usize::MAX).max(1))
    }
}

impl Inner {
    fn put_together(&self, blocks: &[Whole<'_>]) -> Result<Lsn> {
        let padded: SmallVec<[Option<Vec<u8>>; 4]> = blocks.iter().map(Whole::padded).collect();
        let mut groups: SmallVec<[(ListId, SmallVec<[NewBlock<'_>; 2]>); 4]> = SmallVec::new();
        let mut user_bytes = 0;
        for (whole, padded) in blocks.iter().zip(&padded) {
            let new = NewBlock::raw(whole.block, padded.as_deref().unwrap_or(whole.bytes));
            user_bytes += index(whole.volume.block_bytes());
            match groups.iter_mut().find(|(list, _)| *list == whole.list()) {
                Some((_, group)) => group.push(new),
                None => groups.push((whole.list(), SmallVec::from_iter([new]))),
            }
        }
        self.put_groups(&groups, user_bytes)
    }
}
