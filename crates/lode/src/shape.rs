//! The sizes that follow from a medium's geometry: one place, so that writer, recovery and check agree.

use crate::error::{Error, ErrorKind, Result};
use crate::format::header::Header;
use crate::format::object::ObjectRef;
use crate::format::root::RootSegment;
use crate::types::{BLOCK_BYTES_MAX, Location, len_u32, len_u64};
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
/// The window of replay is this part of the image, ...
pub(crate) const WINDOW_PART: u32 = 16;
/// ... and at most so many bytes, if nothing else is asked for.
pub(crate) const WINDOW_BYTES_MAX: u64 = 1 << 30;
/// The smallest zone: roots, directory pages and footers must fit.
pub(crate) const ZONE_BYTES_MIN: u32 = 2048;

/// A list has at most this many sections.
pub(crate) const SECTIONS_MAX: u64 = 1 << 24;

/// The sizes of one disk. See the file's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// May become more (`disk/grow.rs`); nothing else changes.
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
            slots_per_page: (zone_bytes / 1024).clamp(1, 64),
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

    /// So many zones a disk of this shape may grow to: the window of replay, which grows along, must be nameable in a root
    /// as it is; three eighths of a zone must hold the names of all directory pages in a
    /// root, on a disk full of blocks of 512 bytes, and a place must be able to name the zones.
    pub fn zones_most(&self) -> u32 {
        let pages = u128::from(self.zone_bytes / 8 * 3) / u128::try_from(ObjectRef::SIZE).expect("small");
        let slots = u128::from(self.slots_per_page);
        let bytes_of_page = slots * (512u128 << self.section_blocks_shift());
        let zones_of_page = slots * u128::from(self.zones_per_page);
        let zone_bytes = u128::from(self.zone_bytes);
        let zones = pages * bytes_of_page * zones_of_page / (zone_bytes * zones_of_page + bytes_of_page);
        let window = self.window_most();
        let by_window = if len_u64(window) * u64::from(self.zone_bytes) >= WINDOW_BYTES_MAX {
            u32::MAX
        } else {
            len_u32(window).saturating_mul(WINDOW_PART)
        };
        u32::try_from(zones).unwrap_or(u32::MAX).min(by_window).min(Location::ZONES_MAX - 1)
    }

    /// So many segments the window of replay may have: the log is longer until the root is there.
    pub fn window_most(&self) -> usize {
        self.segments_most() / 3 * 2
    }

    /// So many segments may be named in a root: half of a zone.
    pub fn segments_most(&self) -> usize {
        usize::try_from(self.zone_bytes / 2).expect("32 bits") / RootSegment::SIZE
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
