//! The part of a run that sends volumes and receives them: within the disk, and from and to another one, which is sound,
//! is never cut and has a model of its own.

use super::{Run, Step, Stop};
use crate::content::{content_hash, difference};
use crate::model::{Identity, Model, Seen, Since, VolumeState};
use crate::script::{Fill, StreamDraw, VolumeNumber, data, snapshot_name, volume_name};
use lode::{Compression, Disk, Error, ErrorKind, ReceiveOptions, Received, SendOptions};
use std::sync::Arc;

mod far;
pub(super) use far::Far;

/// Volumes and snapshots that come in streams have numbers from here on, which nothing else is drawn with.
const FIRST: u8 = 4;

/// A volume in a snapshot.
#[derive(Clone)]
struct Content {
    volume: String,
    snapshot: String,
    seen: Arc<Seen>,
    state: Arc<VolumeState>,
}

impl Content {
    fn of(model: &Model) -> Vec<Content> {
        let snapshots = model.now().snapshots.iter();
        let mut all: Vec<Content> = snapshots
            .flat_map(|(snapshot, seen)| {
                seen.volumes.iter().map(|(volume, state)| Content {
                    volume: volume.clone(),
                    snapshot: snapshot.clone(),
                    seen: Arc::clone(seen),
                    state: Arc::clone(state),
                })
            })
            .collect();
        all.sort_by_key(|content| content.seen.number);
        all
    }

    fn identity(&self, far: bool) -> Identity {
        self.seen.identity(&self.volume, far).expect("the snapshot has it")
    }
}

/// A stream on its way.
struct Transfer {
    from_far: bool,
    to_far: bool,
    content: Content,
    base: Option<Content>,
    volume: String,
    snapshot: String,
    force: bool,
}

fn pick<T>(of: &[T], pick: u16) -> Option<&T> {
    of.get(usize::from(pick).checked_rem(of.len())?)
}

/// Receives a stream, with a barrier each so many bytes. Nothing is kept of others, and if it fails, of this.
fn receive(
    disk: &Disk,
    stream: &[u8],
    cut: Option<usize>,
    each: u64,
    options: &ReceiveOptions,
) -> lode::Result<Received> {
    let volume = options.volume.as_deref().unwrap_or_default();
    let part = |stream: &[u8]| {
        let mut receiver = disk.receiver(options)?;
        receiver.barrier_each(each);
        receiver.take_in(&mut &*stream, &mut |_, _| ())?;
        receiver.commit()
    };
    // What a kill brought back.
    let _ = disk.drop_receive(volume);
    let received = match cut.map(|cut| part(&stream[..cut])) {
        Some(Err(error)) if error.kind() != ErrorKind::Ended => Err(error),
        Some(Ok(received)) => Ok(received),
        _ => part(stream),
    };
    if received.is_err() {
        let _ = disk.drop_receive(volume);
    }
    received
}

fn far_failed(what: &str, error: &Error) -> Stop {
    Stop::Finding(format!("on the other disk {what} was refused: {error} ({:?})", error.kind()))
}

impl Run<'_> {
    pub(super) fn in_streams(&mut self, draw: &StreamDraw, at: usize) -> Step {
        if self.far.is_none() {
            let far = Far::new(self.script.geometry, self.script.id.seed());
            self.far = Some(far.map_err(|error| far_failed("making it", &error))?);
        }
        let picks = draw.picks;
        let received = FIRST + u8::try_from(picks[0] % 3).expect("few");
        match draw.kind {
            0..=2 => self.on_far(|far, noise| far.change(picks, noise), at),
            3 | 4 => self.on_far(|far, _| far.take_snapshot(at), at),
            5 => self.change_received(received, picks, at),
            6 if picks[1].is_multiple_of(2) => self.delete(received),
            6 => self.delete_snapshot(FIRST + u8::try_from(picks[2] % 4).expect("few")),
            7 => self.roll_back(FIRST + u8::try_from(picks[1] % 4).expect("few"), received),
            8 => self.transfer(picks, false, true),
            9..=11 => self.transfer(picks, false, false),
            _ => self.transfer(picks, true, false),
        }
    }

    fn on_far(&mut self, change: impl FnOnce(&mut Far, &[u8]) -> lode::Result<()>, at: usize) -> Step {
        let Some(far) = &mut self.far else { return Ok(()) };
        let noise = data(self.script.id.seed(), at, far.most(), Fill::Mixed);
        match change(far, &noise) {
            Err(error) if error.kind() != ErrorKind::Full => Err(far_failed("a change", &error)),
            _ => Ok(()),
        }
    }

    /// So that it is not what its newest snapshot saw.
    fn change_received(&mut self, number: VolumeNumber, picks: [u16; 6], at: usize) -> Step {
        let Some(volume) = self.model.volume(&volume_name(number)).cloned() else { return Ok(()) };
        let from = u64::from(picks[1]) % volume.bytes.max(1);
        let length =
            (u64::from(picks[2]) % (2 * u64::from(volume.block_bytes)) + 1).min(volume.bytes - from.min(volume.bytes));
        match picks[3] % 4 {
            0 => self.resize(number, u64::from(picks[1]) % (volume.bytes + 100)),
            1 => self.discard(number, from, length),
            _ => {
                let data = data(self.script.id.seed(), at, length, Fill::Mixed);
                self.write(number, from, &data).map(drop)
            }
        }
    }

    fn end_of(&self, far: bool) -> (&Disk, &Model) {
        match &self.far {
            Some(other) if far => (&other.disk, &other.model),
            _ => (self.open_disk(), &self.model),
        }
    }

    /// What is sent, based on what, and where to. Mostly what makes sense: the newest, based on what the other end has.
    fn planned(&self, picks: [u16; 6], from_far: bool, to_far: bool) -> Option<Transfer> {
        let (source, target) = (self.end_of(from_far).1, self.end_of(to_far).1);
        let all = Content::of(source);
        let content = if picks[0].is_multiple_of(2) { all.last() } else { pick(&all, picks[0] / 2) }?.clone();
        let volume = if picks[1].is_multiple_of(16) {
            content.volume.clone()
        } else {
            volume_name(FIRST + u8::try_from(picks[1] % 3).expect("few"))
        };
        let older: Vec<Content> = all
            .into_iter()
            .filter(|other| other.volume == content.volume && other.state.generation == content.state.generation)
            .filter(|other| other.seen.number < content.seen.number)
            .collect();
        let known = |other: &&Content| target.base_of(&volume, other.identity(from_far), to_far).is_some();
        let base = match picks[2] % 8 {
            0 => pick(&older, picks[2] / 8),
            1 => None,
            _ => older.iter().rev().find(known),
        };
        let base = base.cloned();
        let snapshot = snapshot_name(FIRST + u8::try_from(picks[3] % 4).expect("few"));
        Some(Transfer { from_far, to_far, content, base, volume, snapshot, force: picks[4].is_multiple_of(4) })
    }

    fn transfer(&mut self, picks: [u16; 6], from_far: bool, to_far: bool) -> Step {
        let Some(transfer) = self.planned(picks, from_far, to_far) else { return Ok(()) };
        if !to_far && self.model.shadowed(&transfer.volume) {
            return Ok(()); // What a unit holds of a block that is cut inside is not modelled.
        }
        let mut stream = self.sent(&transfer, picks[4] / 4)?;
        let whole = !picks[5].is_multiple_of(4);
        if !whole {
            stream.truncate(stream.len() * usize::from(picks[5] / 4 % 1000) / 1000);
        }
        let note = self.begin_call();
        let options = ReceiveOptions {
            volume: Some(transfer.volume.clone()),
            snapshot: Some(transfer.snapshot.clone()),
            force: transfer.force,
        };
        // Some are cut first, kept, and gone on with by the same stream.
        let cut = (picks[5] % 4 == 1).then(|| stream.len() * usize::from(picks[5] / 4 % 1000) / 1000);
        let disk = self.end_of(to_far).0;
        let result = receive(disk, &stream, cut, 1 + u64::from(picks[4]) % 9000, &options);
        if to_far {
            return self.judge_far(&transfer, whole, result);
        }
        self.judge_received(&transfer, whole, result)?;
        self.end_call(note);
        Ok(())
    }

    fn sent(&mut self, transfer: &Transfer, compressed: u16) -> Step<Vec<u8>> {
        let note = self.begin_call();
        let position = self.open_disk().position();
        let disk = self.end_of(transfer.from_far).0;
        let volume = |content: &Content| disk.volume_at(&content.snapshot, &content.volume);
        let compression = if compressed.is_multiple_of(2) { Compression::None } else { Compression::Lz4 };
        let mut stream = Vec::new();
        let sent = volume(&transfer.content).and_then(|content| {
            let base = transfer.base.as_ref().map(volume).transpose()?;
            content.send(base.as_ref(), &SendOptions { position: 0, compression }, &mut stream, &mut |_, _| ())
        });
        sent.map_err(|error| self.refused("sending", error))?;
        if !transfer.from_far {
            self.model.flush(self.model.appended());
            self.anchor = self.anchor.max(Some(position));
            self.end_call(note);
        }
        Ok(stream)
    }

    /// Why a stream must be refused, if it must; true: or may be all the same.
    fn refusal(&self, transfer: &Transfer) -> (Option<ErrorKind>, bool) {
        let model = self.end_of(transfer.to_far).1;
        let snapshot = model.now().snapshots.contains_key(&transfer.snapshot);
        match &transfer.base {
            None if snapshot || model.volume(&transfer.volume).is_some() => (Some(ErrorKind::Exists), false),
            None => (None, false),
            Some(base) => match model.base_of(&transfer.volume, base.identity(transfer.from_far), transfer.to_far) {
                None => (Some(ErrorKind::NotFound), false),
                Some(_) if snapshot => (Some(ErrorKind::Exists), false),
                Some(seen) => match model.since(&transfer.volume, seen) {
                    Since::Changed if !transfer.force => (Some(ErrorKind::Conflict), false),
                    Since::Perhaps if !transfer.force => (None, true),
                    _ => (None, false),
                },
            },
        }
    }

    /// `Ok(true)`: it was received, as it had to be.
    fn right(&self, transfer: &Transfer, whole: bool, result: &lode::Result<Received>) -> Result<bool, String> {
        let (must, may_conflict) = self.refusal(transfer);
        let wrong = |found: &str| {
            let base = transfer.base.as_ref().map(|base| &base.snapshot);
            let (content, to) = (&transfer.content, &transfer.volume);
            Err(format!(
                "{}@{} since {base:?} to {to}, whole: {whole}, force: {}: {found}, expected {must:?}",
                content.volume, content.snapshot, transfer.force
            ))
        };
        match result {
            Ok(_) if !whole || must.is_some() => wrong("it was received"),
            Ok(received) if received.bytes != transfer.content.state.bytes => wrong(&format!("{received:?}")),
            Ok(_) => Ok(true),
            Err(error) if Some(error.kind()) == must || error.kind() == ErrorKind::Full => Ok(false),
            Err(error) if error.kind() == ErrorKind::Ended && !whole => Ok(false),
            Err(error) if error.kind() == ErrorKind::Conflict && may_conflict => Ok(false),
            Err(error) => wrong(&format!("{error} ({:?})", error.kind())),
        }
    }

    fn judge_received(&mut self, transfer: &Transfer, whole: bool, result: lode::Result<Received>) -> Step {
        let received = |model: &mut Model| {
            let origin = transfer.content.identity(transfer.from_far);
            let made = transfer.content.seen.made;
            model.received(&transfer.volume, &transfer.snapshot, &transfer.content.state, origin, made);
        };
        if let Err(error) = &result
            && let Stop::Refused(error) = self.refused("receiving", error.clone())
        {
            if self.refusal(transfer).0.is_none() && whole {
                received(&mut self.model);
            }
            return Err(Stop::Refused(error));
        }
        let right =
            self.right(transfer, whole, &result).map_err(|words| Stop::Finding(format!("a stream of {words}")))?;
        if right {
            self.counts.received += 1;
            received(&mut self.model);
            self.model.flush(self.model.appended());
            self.anchor = self.anchor.max(result.ok().map(|received| received.position));
            return Ok(());
        }
        self.compare().map_err(|stop| match stop {
            Stop::Finding(words) => Stop::Finding(format!("a stream was refused, and yet: {words}")),
            refused => refused,
        })
    }

    fn judge_far(&mut self, transfer: &Transfer, whole: bool, result: lode::Result<Received>) -> Step {
        let right = self.right(transfer, whole, &result);
        let right = right.map_err(|words| Stop::Finding(format!("on the other disk a stream of {words}")))?;
        let Some(far) = &mut self.far else { return Ok(()) };
        if right {
            let origin = transfer.content.identity(transfer.from_far);
            let made = transfer.content.seen.made;
            far.model.received(&transfer.volume, &transfer.snapshot, &transfer.content.state, origin, made);
        }
        let hash = content_hash(&far.disk).map_err(|error| far_failed("a read", &error))?;
        if hash != far.model.now().hash() {
            let words = difference(&far.disk, far.model.now());
            return Err(Stop::Finding(format!("the content of the other disk is wrong: {words}")));
        }
        Ok(())
    }
}
