//! Making a disk larger while it is in use: zones are added at its end.
//!
//! ```text
//! the medium has the zones, durably ──> a root names their number, durably ──> they are free, and may be promised
//! ```
//! A crash before the root leaves a disk of the old size on a larger medium, which is opened as it is; a crash behind it a
//! larger disk whose new zones nothing refers to. No record and no table names a new zone before the root is durable, so
//! replay never meets a zone that is not there. Of all sizes only those change that follow from the number of zones.

use super::open::Disk;
use super::{Core, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::map::SectionMeta;
use crate::planted::{self, Bug};
use crate::shape::Shape;
use crate::types::{Lsn, index};
use crate::zones::{Holds, Zone};
use lode_media::Geometry;

/// So many zones become free in one hold.
const AT_ONCE: u32 = 4096;

impl Disk {
    /// Makes the disk larger while it is in use: to an image of so many bytes, cut to whole zones; `None`: to what the
    /// device below has room for by now. Gives back the bytes of the image as it is then, durably. Others go on
    /// meanwhile; those who wait for space get it. Cost: a root, and what the medium takes to become larger.
    ///
    /// Errors: `InvalidArgument` for less than there is (a disk never becomes smaller), or more than can be named;
    /// `ReadOnly`; `Media` if the medium cannot become so large: then nothing has changed.
    pub fn grow(&self, bytes: Option<u64>) -> Result<u64> {
        self.inner().grow(bytes)
    }
}

impl Core {
    /// The tables have room for so many zones. They hold nothing, and are not free yet.
    fn add_zones(&mut self, zones: u32) {
        let shape = &mut self.state.shape;
        shape.zones = zones;
        let pages = index(zones.div_ceil(shape.zones_per_page));
        self.state.zones.all.resize(index(zones), Zone::new(Holds::Nothing));
        self.state.zone_pages.resize(pages, SectionMeta::default());
    }
}

impl Inner {
    fn grow(&self, bytes: Option<u64>) -> Result<u64> {
        drop(self.writable()?);
        let one = self.maintaining.lock();
        let now = self.core.lock().state.shape;
        let wanted = bytes.map(|bytes| zones_of(&now, bytes)).transpose()?;
        let failed = |error| Error::media("making the image larger", error);
        self.medium.grow(wanted).map_err(failed)?;
        let there = || self.medium.geometry().zones.min(now.zones_most()).max(now.zones);
        let zones = wanted.unwrap_or_else(there);
        if zones == now.zones {
            return Ok(now.image_bytes());
        }
        let grown = Shape::new(Geometry { zones, zone_bytes: now.zone_bytes, append_align: now.align, devices: 1 })?;
        self.core.lock().growing = Some(zones);
        let named = if planted::is(Bug::GrowWithoutRoot) { Ok(()) } else { self.checkpoint_to(Lsn(0), false) };
        let mut core = self.core.lock();
        core.growing = None;
        named?;
        crate::mark("grow: a root names more zones");
        core.add_zones(zones);
        for first in (now.zones..zones).step_by(index(AT_ONCE)) {
            core.free.extend(first..zones.min(first + AT_ONCE));
            crate::sync::MutexGuard::bump(&mut core);
        }
        drop(core);
        drop(one);
        self.space.notify_all();
        self.keeper.notify_all();
        drop(self.tell_space(self.core.lock()));
        Ok(grown.image_bytes())
    }
}

/// How many whole zones an image of so many bytes has.
fn zones_of(now: &Shape, bytes: u64) -> Result<u32> {
    let zones = bytes / u64::from(now.zone_bytes);
    let refused = |what: String| Err(Error::new(ErrorKind::InvalidArgument, what));
    let most = u64::from(now.zones_most());
    if zones < u64::from(now.zones) {
        return refused(format!(
            "an image of {bytes} bytes: expected at least the {} that it has, since a disk never becomes smaller",
            now.image_bytes()
        ));
    }
    if zones > most.max(now.zones.into()) {
        return refused(format!(
            "an image of {bytes} bytes: expected at most {}, which are {most} zones of {} bytes: more cannot be named in a root; a disk made with larger \
             zones can become larger",
            most * u64::from(now.zone_bytes),
            now.zone_bytes
        ));
    }
    Ok(u32::try_from(zones).expect("checked to be few"))
}
