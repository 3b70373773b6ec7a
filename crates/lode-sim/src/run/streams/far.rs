//! The other disk: in memory, sound, and never cut.

use super::Content;
use crate::model::Model;
use crate::rng::{Rng, mix, narrow, wide};
use lode::{Compression, Disk, FormatOptions, OpenOptions, SnapshotOptions, VolumeOptions};
use lode_media::Geometry;
use lode_media::ram::RamMedium;
use std::sync::Arc;

/// The volume that changes there.
const SOURCE: &str = "source";
/// What it has of blocks at most.
const BLOCKS: u64 = 24;

/// The other disk.
pub(crate) struct Far {
    pub(super) disk: Disk,
    pub(super) model: Model,
    block: u64,
}

impl Far {
    pub(super) fn new(geometry: Geometry, seed: u64) -> lode::Result<Far> {
        let medium = Arc::new(RamMedium::new(Geometry { zones: geometry.zones.max(64), ..geometry }));
        Disk::format(medium.clone(), &FormatOptions { disk_id: u128::from(mix(seed, 0xFA7)) })?;
        let disk = Disk::open(medium, &OpenOptions { background: false, ..OpenOptions::default() })?;
        let mut rng = Rng::new(mix(seed, 0xFA8));
        let most = (geometry.zone_bytes / 16).clamp(64, 4096);
        let block_bytes = *rng.pick(&[64, most.min(256), most]);
        let block_bytes = 1 << block_bytes.ilog2();
        let compressed = rng.percent(30);
        let compression = if compressed { Compression::Lz4 } else { Compression::None };
        let bytes = u64::from(block_bytes) * rng.between(1, BLOCKS);
        disk.create_volume(SOURCE, &VolumeOptions { bytes, block_bytes, compression })?;
        let mut model = Model::new();
        model.create(SOURCE, bytes, block_bytes, compressed);
        Ok(Far { disk, model, block: u64::from(block_bytes) })
    }

    /// So much is written to the source at most.
    pub(super) fn most(&self) -> u64 {
        self.block * BLOCKS
    }

    /// Does something to the source. What a full disk refuses changes nothing.
    pub(super) fn change(&mut self, picks: [u16; 6], noise: &[u8]) -> lode::Result<()> {
        let bytes = self.model.volume(SOURCE).map_or(0, |volume| volume.bytes);
        let wanted = if picks[0].is_multiple_of(8) { self.block * BLOCKS } else { self.block * 2 };
        let at = u64::from(picks[1]) % bytes.max(1);
        let length = (u64::from(picks[2]) % wanted + 1).min(bytes - at.min(bytes));
        let volume = self.disk.volume(SOURCE)?;
        match picks[3] % 8 {
            0 => {
                let size = u64::from(picks[1]) % (self.block * BLOCKS) + 1;
                self.disk.resize_volume(SOURCE, size)?;
                self.model.resize(SOURCE, size);
            }
            1 | 2 => {
                volume.discard(at, length)?;
                self.model.discard(SOURCE, at, length);
            }
            _ => {
                volume.write_at(at, &noise[..narrow(length)])?;
                self.model.write(SOURCE, at, &noise[..narrow(length)]);
            }
        }
        while self.disk.maintain()? {}
        Ok(())
    }

    /// The oldest goes when there are too many.
    pub(super) fn take_snapshot(&mut self, at: usize) -> lode::Result<()> {
        let made = wide(at);
        let name = format!("far{at}");
        self.disk.take_snapshot(&name, &SnapshotOptions { volumes: vec![SOURCE.to_owned()], lists: false, made })?;
        self.model.take_snapshot_at(&name, &[SOURCE.to_owned()], made);
        let own: Vec<Content> = Content::of(&self.model).into_iter().filter(|own| own.volume == SOURCE).collect();
        if own.len() > 5 {
            self.disk.delete_snapshot(&own[0].snapshot)?;
            self.model.delete_snapshot(&own[0].snapshot);
        }
        Ok(())
    }
}
