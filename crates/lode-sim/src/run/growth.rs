//! The part of a run that makes the disk larger.

use super::{Run, Step, Stop};
use lode::{Disk, ErrorKind};

impl Run<'_> {
    /// All of it at one instant, and for good; no volume, unit or snapshot is touched.
    pub(super) fn grow(&mut self, more: u32) -> Step {
        let wanted = self.zones + more;
        let bytes = u64::from(wanted) * u64::from(self.script.geometry.zone_bytes);
        let before = self.open_disk().info().map_err(|error| self.refused("asking for the size", error))?;
        let note = self.begin_call();
        let result = self.open_disk().grow(Some(bytes));
        match result {
            Ok(there) if there == bytes => self.zones = wanted,
            Ok(there) => return Err(Stop::Finding(format!("grown to {there} bytes, asked for {bytes}"))),
            // A root cannot name more.
            Err(error) if error.kind() == ErrorKind::InvalidArgument => {}
            Err(error) => {
                self.zones_most = wanted;
                return Err(self.refused("growing", error));
            }
        }
        self.zones_most = self.zones;
        self.end_call(note);
        let after = self.open_disk().info().map_err(|error| self.refused("asking for the size", error))?;
        let gained = after.usable > before.usable;
        if after.zones != self.zones || (self.zones > before.zones) != gained {
            return Err(Stop::Finding(format!("grown by {more} zones, from {before:?} to {after:?}")));
        }
        Ok(())
    }

    /// After a crash the disk has the zones that it had, or those that a failed growth wanted.
    pub(super) fn came_back_with(&mut self, disk: &Disk) -> Step {
        let zones = disk.info().map_err(|error| self.refused("asking for the size", error))?.zones;
        if zones != self.zones && zones != self.zones_most {
            let expected = [self.zones, self.zones_most];
            return Err(Stop::Finding(format!("after a crash the disk has {zones} zones, expected {expected:?}")));
        }
        (self.zones, self.zones_most) = (zones, zones);
        Ok(())
    }
}
