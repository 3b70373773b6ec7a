//! The sizes that follow from a medium's geometry: one place, so that writer, recovery and check agree.

use crate::error::{Error, ErrorKind, Result};
use crate::format::header::Header;
use crate::types::{BLOCK_BYTES_MAX, Location};
use lode_media::Geometry;

/// Zones that hold roots: two pairs (R25).
pub(crate) const ROOT_ZONES: u32 = 4;
/// Zones that only cleaning, checkpoints, commits and deletes may take (R28).
pub(crate) const RESERVE_ZONES: u32 = 16;
/// Zones that are being filled, announced, or hold tables that die soon.
pub(crate) const FILLING_ZONES: u32 = 10;
/// A disk has at least this many zones.
pub const SMALLEST_ZONES: u32 = 40;
/// What a stored block is charged beyond its bytes: its records (twice) and its entries in the tables (R27).
pub(crate) const BLOCK_CHARGE: u64 = 128;
/// The smallest zone: roots, directory pages and footers must fit.
pub(crate) const ZONE_BYTES_MIN: u32 = 2048;

/// A list has at most this many sections.
pub(crate) const SECTIONS_MAX: u64 = 1 << 24;

/// The sizes of one disk. See the file's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub zones: u32,
    pub zone_bytes: u32,
    pub align: u32,
    /// Bytes of a batch's head area.
    pub head: u32,
    /// The most bytes of a batch.
    pub batch_bytes: u32,
    /// Blocks of a leaf: 2 to this power.
    pub leaf_shift: u32,
    /// Leaves of a section: 2 to this power.
    pub section_shift: u32,
    pub lists_per_page: u32,
    pub zones_per_page: u32,
    pub slots_per_page: u32,
    pub deltas_max: usize,
    /// A simple operation of at most this much data goes into one batch as it is; a longer one is an internal unit.
    pub direct_bytes: u32,
    /// ... and of at most so many blocks.
    pub direct_blocks: u32,
}

impl Shape {
    pub fn new(geometry: Geometry) -> Result<Shape> {
        let Geometry { zones, zone_bytes, append_align: align, .. } = geometry;
        let invalid = |what: String| Err(Error::new(ErrorKind::InvalidArgument, what));
        if zones < SMALLEST_ZONES {
            return invalid(format!(
                "the disk is too small: {zones} zones of {zone_bytes} bytes; at least {SMALLEST_ZONES} zones are needed, {} bytes",
                u64::from(SMALLEST_ZONES) * u64::from(zone_bytes)
            ));
        }
        if zones >= Location::ZONES_MAX {
            return invalid(format!(
                "{zones} zones are too many: at most {} can be named; take larger zones",
                Location::ZONES_MAX - 1
            ));
        }
        if !(ZONE_BYTES_MIN..=Location::ZONE_BYTES_MAX).contains(&zone_bytes)
            || !align.is_power_of_two()
            || !zone_bytes.is_multiple_of(align)
        {
            return invalid(format!(
                "zones of {zone_bytes} bytes, appended to in multiples of {align}: expected a multiple from {ZONE_BYTES_MIN} to {}",
                Location::ZONE_BYTES_MAX
            ));
        }
        let head = Header::head_bytes(align);
        let batch_bytes = (zone_bytes / 4).min(1 << 20).max(2 * head).next_multiple_of(align);
        if zone_bytes < 4 * head {
            return invalid(format!(
                "zones of {zone_bytes} bytes are too small for appends in multiples of {align}: at least {} are needed",
                4 * head
            ));
        }
        let section_blocks = (zone_bytes / 64).clamp(16, 1 << 16).ilog2();
        let leaf_shift = section_blocks.saturating_sub(2).min(10);
        Ok(Shape {
            zones,
            zone_bytes,
            align,
            head,
            batch_bytes,
            leaf_shift,
            section_shift: (section_blocks - leaf_shift).min(6),
            lists_per_page: (zone_bytes / 2048).clamp(1, 64),
            zones_per_page: (zone_bytes / 128).clamp(16, 1024),
            slots_per_page: (zone_bytes / 4096).clamp(1, 64),
            deltas_max: usize::try_from(zone_bytes / 8192).expect("small").clamp(2, 32),
            direct_bytes: ((batch_bytes - head) / 2).min(1 << 16),
            // Each with a second record, of what a snapshot sees.
            direct_blocks: ((batch_bytes - head) / 2 / 96).clamp(1, 16),
        })
    }

    /// What a list, a layer or a snapshot is charged: its record, its sections and their entries, in two copies. Where
    /// zones are tiny, pages of tables hold few of them, and each is padded.
    pub fn list_charge(&self) -> u64 {
        1024 + u64::from(8 * self.align / self.lists_per_page)
    }

    /// Bytes of the whole image.
    pub fn image_bytes(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.zone_bytes)
    }

    /// The largest block that a list of this disk may have.
    pub fn block_bytes_max(&self) -> u32 {
        let most = self.direct_bytes.min(BLOCK_BYTES_MAX);
        1 << most.ilog2()
    }

    pub fn leaf_blocks(&self) -> u32 {
        1 << self.leaf_shift
    }

    pub fn section_leaves(&self) -> usize {
        1 << self.section_shift
    }

    /// The most blocks of a list.
    pub fn blocks_max(&self) -> u64 {
        SECTIONS_MAX << self.section_blocks_shift()
    }

    pub fn section_blocks_shift(&self) -> u32 {
        self.leaf_shift + self.section_shift
    }

    /// Bytes that may be promised to users, each stored block charged with [`BLOCK_CHARGE`]: 95 % of what the reserve
    /// leaves (R28).
    pub fn promisable(&self) -> u64 {
        let zones = u64::from(self.zones - ROOT_ZONES - RESERVE_ZONES - FILLING_ZONES);
        // Heads of batches, and the ends of batches and zones into which no block fits.
        let lost =
            u64::from(self.head) * u64::from(self.zone_bytes / self.batch_bytes + 1) + u64::from(self.zone_bytes) / 64;
        let payload = u64::from(self.zone_bytes).saturating_sub(lost);
        zones * payload / 100 * 95
    }
}

/// The zone size chosen for an image of this size: about a thousand zones, between 64 KiB and 8 MiB:
/// larger ones would make the search for the end of the log longer.
pub fn default_zone_bytes(image_bytes: u64) -> u32 {
    let wanted = (image_bytes / 1024).clamp(64 << 10, 8 << 20);
    let bytes = 1u64 << wanted.ilog2();
    u32::try_from(bytes).expect("at most 8 MiB")
}
