//! A bar on standard error for what takes longer than a second; nothing where there is no terminal. And the place where
//! a command that runs for a client of the control socket notices that it is not wanted any more.

use crate::control::peer::Peer;
use crate::failure::{Failure, Result};
use crate::session;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How far a long piece of work has come, in bytes.
pub struct Progress {
    what: Cow<'static, str>,
    total: Option<u64>,
    shown: Shown,
    stopped: Option<Failure>,
}

/// Where it is shown.
enum Shown {
    /// Here.
    Bar { bar: ProgressBar, started: Instant, visible: bool },
    /// By the client.
    Told(Rc<Peer>),
}

impl Progress {
    /// A bar for `what`. Without a `total` (a stream) only what is done is shown.
    pub fn bytes(what: impl Into<Cow<'static, str>>, total: Option<u64>) -> Self {
        let what = what.into();
        let shown = match session::peer() {
            Some(peer) => Shown::Told(peer),
            None => Shown::Bar { bar: bar(what.clone(), total), started: Instant::now(), visible: false },
        };
        Progress { what, total, shown, stopped: None }
    }

    /// So much is done by now. Fails if nobody wants the rest.
    pub fn set(&mut self, done: u64) -> Result<()> {
        match &mut self.shown {
            Shown::Told(peer) => peer.progress(&self.what, done, self.total).map_err(Failure::unwanted),
            Shown::Bar { bar, started, visible } => {
                if !*visible && started.elapsed() > Duration::from_secs(1) {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    *visible = true;
                }
                bar.set_position(done);
                Ok(())
            }
        }
    }

    /// The same as an engine wants to hear it; [`Progress::finish`] then says why the work broke off.
    pub fn advance(&mut self, done: u64) -> ControlFlow<()> {
        match self.set(done) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.stopped = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    /// Takes the bar away. Fails if the work broke off.
    pub fn finish(mut self) -> Result<()> {
        self.stopped.take().map_or(Ok(()), Err)
    }

    /// The total turned out to be this.
    pub fn set_total(&mut self, total: u64) {
        let known = self.total.replace(total).is_some();
        if let Shown::Bar { bar, .. } = &self.shown {
            bar.set_length(total);
            if !known {
                set_style(bar, true);
            }
        }
    }
}

fn bar(what: Cow<'static, str>, total: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
    set_style(&bar, total.is_some());
    bar.set_prefix(what);
    bar
}

fn set_style(bar: &ProgressBar, has_total: bool) {
    let template = if has_total {
        "{prefix} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left"
    } else {
        "{prefix} {spinner} {binary_bytes} {binary_bytes_per_sec}"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shown::Bar { bar, .. } = &self.shown {
            bar.finish_and_clear();
        }
    }
}
