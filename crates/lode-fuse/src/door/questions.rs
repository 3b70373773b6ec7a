//! Values of extended attributes, among them answers to what programs ask of transactions.

use super::{Answer, Asker, Door, News, now, told};
use crate::control::{self, Question};
use crate::errno::errno;
use crate::node::{Node, parts};
use crate::views::Open;
use lode_fs::{Committed, Conflicts};
use rustix::io::Errno;

/// Who asks how long an answer is gets the most that it can be: nothing is done for that.
const ANSWER_MAX: u32 = 1 << 16;

/// A value, for who has room for some bytes of it or asks how long it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Bytes(Vec<u8>),
    Length(u32),
}

/// When a value is known.
pub(crate) enum Answered {
    Now(Answer<Value>),
    /// Once the kernel has forgotten what was changed.
    Later(Committed),
}

/// A value for who has room for `size` bytes; for who has none, how long it is.
pub(crate) fn fitted(size: u32, value: Vec<u8>) -> Answer<Value> {
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => Ok(Value::Length(len)),
        Ok(len) if len <= size => Ok(Value::Bytes(value)),
        _ => Err(Errno::RANGE),
    }
}

fn no_transaction(number: u64) -> Vec<u8> {
    control::refused(Errno::NOENT.raw_os_error(), &format!("there is no transaction {number}"))
}

impl Door {
    /// The value of an extended attribute, or the answer to a question.
    pub fn extended(&self, asker: Asker, node: Node, name: &[u8], size: u32) -> Answered {
        let Some(question) = Question::of(name) else {
            let value = match node.is_made_up() {
                true => Err(Errno::NODATA),
                false => self.at(node).and_then(|(_, view, ino)| told(view.attribute(ino, name))),
            };
            return Answered::Now(value.and_then(|value| fitted(size, value)));
        };
        let (within, _) = parts(node);
        let (errno, why) = match question {
            Err(why) => (Errno::INVAL, why),
            Ok(_) if size == 0 => return Answered::Now(Ok(Value::Length(ANSWER_MAX))),
            Ok(question) => match self.answer(asker, within, &question) {
                Ok(Done::Now(value)) => return Answered::Now(fitted(size, value)),
                Ok(Done::Later(committed)) => return Answered::Later(committed),
                Err(error) => (errno(&error), error.to_string()),
            },
        };
        Answered::Now(fitted(size, control::refused(errno.raw_os_error(), &why)))
    }

    /// Has the kernel told what was committed; `then` is called once it knows.
    pub fn tell(&self, committed: Committed, then: Box<dyn FnOnce() + Send>) {
        if let Err(unsent) = self.news.lock().send(News { committed, told: then }) {
            (unsent.0.told)();
        }
    }

    /// What a program asks of transactions; `within`: in which it is itself.
    fn answer(&self, asker: Asker, within: u64, question: &Question) -> lode_fs::Result<Done> {
        let views = &self.views;
        Ok(Done::Now(match question {
            Question::Begin(loose) => {
                let conflicts = if *loose { Conflicts::Changed } else { Conflicts::Read };
                control::done(views.begin(within, conflicts, (asker.uid, asker.pid), now())?, b"")
            }
            Question::Find(name) => {
                let number = views.named(name, asker.uid)?;
                if self.may(asker, number) {
                    control::done(number, b"")
                } else {
                    control::refused(Errno::ACCESS.raw_os_error(), "the transaction is somebody else's")
                }
            }
            Question::List => control::done(0, self.listed(asker)?.as_bytes()),
            Question::Commit(number)
            | Question::Abort(number)
            | Question::Keep(number, _)
            | Question::Differences(number, _) => match views.get(*number).filter(|_| self.may(asker, *number)) {
                Some(open) => return self.answer_about(*number, &open, question),
                None => no_transaction(*number),
            },
        }))
    }

    fn answer_about(&self, number: u64, open: &Open, question: &Question) -> lode_fs::Result<Done> {
        let mut text = Vec::new();
        match question {
            Question::Commit(_) => {
                let committed = open.transaction.commit(now())?;
                self.views.forget(number);
                // A command that succeeds is durable; within another run, when that one is.
                if committed.within.is_none() {
                    self.views.fs.sync()?;
                }
                return Ok(Done::Later(committed));
            }
            Question::Keep(_, name) => open.transaction.keep(name)?,
            Question::Differences(_, from) => {
                text = control::differences_as_text(&open.transaction.differences()?, *from);
            }
            _ => {
                self.views.forget(number);
                open.transaction.abort();
            }
        }
        Ok(Done::Now(control::done(number, &text)))
    }

    /// The transactions that somebody may look into, a line for each.
    fn listed(&self, asker: Asker) -> lode_fs::Result<String> {
        let mut text = String::new();
        for info in self.views.fs.transactions() {
            let number = match (self.views.number_of(info.number), &info.name) {
                (None, Some(name)) => Some(self.views.named(name, 0)?),
                (known, _) => known,
            };
            if let Some(number) = number.filter(|number| self.may(asker, *number)) {
                text.push_str(&control::listed_as_text(number, &info));
            }
        }
        Ok(text)
    }
}

/// What a question has led to.
enum Done {
    Now(Vec<u8>),
    Later(Committed),
}
