//! Where a thread that answers runs. A small request is answered where it was made: nothing is woken elsewhere, and nothing is
//! copied from processor to processor. Of long ones whoever asks has several under way, and has work of its own with what
//! came: while they come the thread may run wherever a processor is free.
//!
//! A thread that answers goes before programs. Then a program that has asked has had its turn (its lag is negative), the
//! scheduler leaves it on the processor's queue, and who answers wakes it there. Otherwise it would be put on another
//! processor that has nothing to do, and have to wait until that one has come to itself: on a virtual machine longer than
//! the whole request takes.

use rustix::thread::CpuSet;

/// Requests, or answers, of so many bytes are long.
const LONG: usize = 128 << 10;
/// How nice threads that answer are. Who may not go before others is slower.
const NICE: i32 = -10;

/// The place of the thread that has made it.
pub(crate) struct Seat {
    own: Option<CpuSet>,
    /// Where it might run before.
    all: Option<CpuSet>,
    roams: bool,
}

impl Seat {
    /// On a processor, if there is one of that number now.
    pub fn take(processor: u16) -> Seat {
        let processor = usize::from(processor);
        let own = (processor < CpuSet::MAX_CPU).then(|| {
            let mut own = CpuSet::new();
            own.set(processor);
            own
        });
        let seat = Seat { own, all: rustix::thread::sched_getaffinity(None).ok(), roams: false };
        seat.sit();
        // Of the calling thread alone.
        let _ = rustix::process::setpriority_process(None, NICE);
        seat
    }

    fn sit(&self) {
        let (Some(own), Some(all)) = (&self.own, &self.all) else { return };
        // Without it it is as fast as the scheduler makes it.
        let _ = rustix::thread::sched_setaffinity(None, if self.roams { all } else { own });
    }

    /// A request of so many bytes was answered: the next is taken for one like it.
    pub fn next(&mut self, bytes: usize) {
        let roams = bytes >= LONG;
        if roams != self.roams {
            self.roams = roams;
            self.sit();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn now() -> Vec<usize> {
        let set = rustix::thread::sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
    }

    #[test]
    fn long_requests_are_answered_anywhere_and_others_on_one_processor() {
        let all = now();
        let first = u16::try_from(all[0]).unwrap();
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let mut seat = Seat::take(first);
        assert_eq!(now(), [all[0]]);
        // Where that is allowed.
        assert!(nice() == NICE || rustix::process::setpriority_process(None, NICE).is_err());
        seat.next(LONG - 1);
        assert_eq!(now(), [all[0]]);
        seat.next(LONG);
        assert_eq!(now(), all);
        seat.next(1 << 20);
        assert_eq!(now(), all);
        seat.next(0);
        assert_eq!(now(), [all[0]]);
        // One that is not there: it stays where it may run.
        seat.next(LONG);
        let _ = Seat::take(u16::MAX);
        assert_eq!(now(), all);
    }
}
