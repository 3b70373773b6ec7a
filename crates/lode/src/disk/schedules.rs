//! Schedules of snapshots: one every so often, of which so many are kept. The disk keeps the schedules; it has no clock,
//! so somebody who has one says what time it is.

use super::options::SnapshotOptions;
use super::space::Claim;
use super::volumes::{LIST_RECORD, check_name};
use super::{Core, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::{Form, ListMeta, ListState, NAME_BYTES_MAX, Record};
use crate::planted::{self, Bug};
use crate::types::{ListId, Lsn, len_u32, len_u64};

/// When snapshots are taken, and how many are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSchedule {
    /// Its name, with which the names of its snapshots begin.
    pub name: String,
    /// From one to the next, in nanoseconds: at least a second.
    pub every: u64,
    /// So many are kept: when there are more, the oldest is deleted.
    pub keep: u64,
    /// Of these volumes; none, and `lists` is not set: of all that there is.
    pub volumes: Vec<String>,
    /// Of the ordered lists, all of them.
    pub lists: bool,
}

/// What schedules have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Snapshots that were taken.
    pub taken: Vec<String>,
    /// Snapshots that were deleted.
    pub deleted: Vec<String>,
}

/// The shortest time from one snapshot to the next.
const EVERY_MIN: u64 = 1_000_000_000;
/// A schedule keeps at most so many.
const KEEP_MAX: u64 = 100_000;
/// A schedule is of at most so many volumes, if not of all.
const VOLUMES_MAX: usize = 64;
/// The name of a snapshot has so many bytes behind that of its schedule, at most.
const TIME_BYTES: usize = 32;

impl Core {
    fn schedules(&self) -> impl Iterator<Item = &ListMeta> {
        let metas = self.state.lists.values().map(|list| &list.meta);
        metas.filter(|meta| meta.form == Form::Schedule && meta.state == ListState::There)
    }

    fn schedule_named(&self, name: &str) -> Option<ListId> {
        self.schedules().find(|meta| meta.name == name).map(|meta| meta.list)
    }
}

impl Inner {
    fn schedule_metas(&self) -> Vec<ListMeta> {
        self.core.lock().schedules().cloned().collect()
    }

    /// Makes a schedule, or changes the one of this name.
    pub(super) fn set_schedule(&self, schedule: &SnapshotSchedule) -> Result<Lsn> {
        check_name("a schedule", &schedule.name)?;
        if schedule.name.len() + TIME_BYTES > NAME_BYTES_MAX {
            let most = NAME_BYTES_MAX - TIME_BYTES;
            let words = format!("a name of {} bytes: expected at most {most}, for a schedule", schedule.name.len());
            return Err(Error::new(ErrorKind::InvalidArgument, words));
        }
        let room = LIST_RECORD + 4 * (len_u32(schedule.volumes.len()) + 1);
        let sound = schedule.every >= EVERY_MIN
            && (1..=KEEP_MAX).contains(&schedule.keep)
            && schedule.volumes.len() <= VOLUMES_MAX
            && room <= self.shape.batch_bytes - self.shape.head;
        if !sound {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a schedule of {} volumes, every {} ns, keeping {}: expected at most {VOLUMES_MAX}, fewer on a tiny disk; \
                     a second or more; 1 to {KEEP_MAX}",
                    schedule.volumes.len(),
                    schedule.every,
                    schedule.keep
                ),
            ));
        }
        let mut members = self.core.lock().members(&schedule.volumes, schedule.lists)?;
        // The table of the ordered lists stands for all that they are in.
        members.truncate(schedule.volumes.len() + usize::from(schedule.lists));
        self.with_room(0, room, Claim::Urgent, |core| {
            let old = core.schedule_named(&schedule.name);
            if old.is_none() && !core.promises(self.shape.list_charge()) {
                return Err(self.full(core, self.shape.list_charge()));
            }
            core.write_record(&Record::List(ListMeta {
                name: schedule.name.clone(),
                cut: schedule.keep,
                made: schedule.every,
                members,
                ..ListMeta::new(old.unwrap_or(ListId(core.state.next_list)), Form::Schedule)
            }));
            Ok(core.writer.lsn)
        })?
    }

    /// All schedules, by name.
    pub(super) fn list_schedules(&self) -> Vec<SnapshotSchedule> {
        let mut all: Vec<SnapshotSchedule> = self.schedule_metas().iter().map(|meta| self.schedule(meta)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// In words; volumes that are gone are not named any more.
    fn schedule(&self, meta: &ListMeta) -> SnapshotSchedule {
        let core = self.core.lock();
        let name =
            |list: &ListId| core.state.lists.get(list).filter(|l| l.meta.is_volume()).map(|l| l.meta.name.clone());
        let volumes = meta.members.iter().filter_map(name).collect();
        let lists = meta.members.contains(&core.state.tables.lists);
        SnapshotSchedule { name: meta.name.clone(), every: meta.made, keep: meta.cut, volumes, lists }
    }

    /// Forgets a schedule; its snapshots stay.
    pub(super) fn remove_schedule(&self, name: &str) -> Result<Lsn> {
        self.with_room(0, LIST_RECORD, Claim::Urgent, |core| {
            let none = || Error::new(ErrorKind::NotFound, format!("there is no schedule named {name}"));
            let list = core.schedule_named(name).ok_or_else(none)?;
            core.write_record(&Record::ListGone { list });
            Ok(core.writer.lsn)
        })?
    }

    /// Does what is due at `now`. What fails, for want of space, holds up no other schedule; it is told, and tried again
    /// the next time.
    pub(super) fn run_schedules(&self, now: u64, when: &dyn Fn(u64) -> String) -> Result<Scheduled> {
        let mut done = Scheduled::default();
        let mut failed = None;
        for meta in self.schedule_metas() {
            if let Err(error) = self.run_schedule(&meta, now, when, &mut done) {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(done), Err)
    }

    fn run_schedule(
        &self,
        meta: &ListMeta,
        now: u64,
        when: &dyn Fn(u64) -> String,
        done: &mut Scheduled,
    ) -> Result<()> {
        let schedule = self.schedule(meta);
        if schedule.volumes.is_empty() && !schedule.lists && !meta.members.is_empty() {
            return Ok(()); // All of them are gone.
        }
        // Also after a clock that was ahead by more than that was set back.
        let due = self.taken_by(meta.list).last().is_none_or(|(_, made)| now.abs_diff(*made) >= schedule.every);
        if due {
            let name = format!("{}-{}", schedule.name, when(now));
            let options = SnapshotOptions { volumes: schedule.volumes.clone(), lists: schedule.lists, made: now };
            self.take_snapshot_by(&name, &options, meta.list)?;
            crate::mark("schedule: snapshot taken");
            done.taken.push(name);
        }
        let own = self.taken_by(meta.list);
        let many = len_u64(own.len()).saturating_sub(schedule.keep);
        for (name, _) in own.into_iter().take(crate::types::index64(many)) {
            self.delete_snapshot(&name)?;
            crate::mark("schedule: snapshot deleted");
            done.deleted.push(name);
        }
        Ok(())
    }

    /// The snapshots that a schedule has taken, in that order, and when.
    fn taken_by(&self, schedule: ListId) -> Vec<(String, u64)> {
        let core = self.core.lock();
        let snapshots = core.state.versions.names.values().filter_map(|id| core.state.lists.get(&ListId(id.0)));
        let anybody = planted::is(Bug::SchedulesDeleteAll);
        let is_own = |snapshot: &&ListMeta| anybody || snapshot.cut == u64::from(schedule.0);
        let own = snapshots.map(|list| &list.meta).filter(is_own);
        let mut own: Vec<_> = own.map(|snapshot| (snapshot.list, snapshot)).collect();
        own.sort_unstable_by_key(|(list, _)| *list);
        own.into_iter().map(|(_, snapshot)| (snapshot.name.clone(), snapshot.made)).collect()
    }
}
