//! Reading ahead in the order of a list (*The Logical Disk*, section 2.2): who reads the blocks of an ordered list one
//! after the other gets those that follow into the cache, in few reads where the cleaner has put them together.
//!
//! The first miss reads one block and expects the one behind it; a miss that was expected reads a window, and each
//! further one twice as much. So reads here and there read nothing ahead, and whoever reads in order soon reads in large
//! pieces.

use super::Inner;
use super::read::View;
use crate::ordered::{Owner, Staged, following};
use crate::types::{BlockId, Location, SnapshotId};

/// So many readers at once are told apart.
const READERS: usize = 16;
/// The first window, in blocks.
const WINDOW_LEAST: usize = 4;
/// The largest window, in bytes; and in blocks, which are looked up in one hold of the lock.
const WINDOW_MOST: usize = 256 << 10;
const BLOCKS_MOST: usize = 256;

/// Who reads in order, and where each will go on.
#[derive(Default)]
pub(crate) struct Ahead {
    /// The block that comes next, and how many are to be read then.
    expected: [Option<(BlockId, Option<SnapshotId>, usize)>; READERS],
    /// Which is forgotten next.
    hand: usize,
}

impl Ahead {
    /// How many blocks to read from this one on; none: nobody was expected there.
    fn take(&mut self, block: BlockId, at: Option<SnapshotId>) -> Option<usize> {
        let found =
            self.expected.iter_mut().find(|known| known.is_some_and(|(next, of, _)| (next, of) == (block, at)))?;
        found.take().map(|(_, _, window)| window)
    }

    fn expect(&mut self, block: BlockId, at: Option<SnapshotId>, window: usize) {
        self.expected[self.hand] = Some((block, at, window));
        self.hand = (self.hand + 1) % READERS;
    }
}

impl Inner {
    /// Called before a block of an ordered list is read. Brings what follows into the cache if somebody reads in order.
    /// What goes wrong is left to the read itself.
    pub(crate) fn read_ahead(&self, owner: &Owner, block: BlockId, at: Option<SnapshotId>) {
        let Some(cache) = &self.cache else { return };
        let view = View { list: owner.pool.blocks, at };
        let block_bytes = 1usize << owner.attributes.shift;
        let most = (WINDOW_MOST.min(self.options.cache_bytes / 8) / block_bytes).clamp(1, BLOCKS_MOST);
        let places: Vec<(Location, u32)> = {
            let core = self.core.lock();
            let lookup = |block: BlockId| view.lookup(&core.state, block.parts().1.into()).ok().flatten();
            let on_medium = |(place, _): &(Location, u32)| core.writer.stored(*place).is_none();
            let missing = |found: &(Location, u32)| cache.get(&found.0.0).is_none_or(|cached| !cached.is(found.1));
            if !owner.attributes.cluster || !lookup(block).is_some_and(|found| on_medium(&found) && missing(&found)) {
                return;
            }
            let mut ahead = self.ahead.lock();
            let window = ahead.take(block, at).unwrap_or(1).min(most);
            // A row that is not in memory ends it.
            let Ok(mut blocks) = following(&core.state, &Staged::seen_by(at), block, window + 1) else { return };
            if blocks.len() > window {
                let next = blocks.pop().expect("longer than the window");
                ahead.expect(next, at, (window * 2).max(WINDOW_LEAST).min(most));
            }
            if blocks.len() < 2 {
                return;
            }
            blocks.into_iter().filter_map(lookup).filter(on_medium).filter(missing).collect()
        };
        crate::mark("lists: read ahead");
        for ((place, checksum), stored) in places.iter().zip(self.read_stored(&places)) {
            let mut bytes = vec![0; block_bytes];
            if stored.is_ok_and(|stored| super::read::unpack_unchecked(&stored, *place, &mut bytes).is_ok()) {
                cache.insert(place.0, super::read::CachedBlock::new(*checksum, &bytes));
            }
        }
    }
}
