//! What was received of streams that were cut.

use super::super::unit;
use crate::failure::{Code, Failure, Result};
use crate::{image, output, text};
use lode::ReceiveInfo;
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Kept {
    volume: String,
    snapshot: String,
    begun: Option<String>,
    state: &'static str,
    /// A stream that goes on begins here, or before.
    position: u64,
    /// The size of the volume when it is whole.
    bytes: u64,
    /// Bytes that the stream has brought.
    data_bytes: u64,
    /// Bytes of blocks that the disk keeps for it.
    kept_bytes: u64,
    stream: Stream,
}

/// Which stream it is: where it was sent, and where its content is from.
#[derive(Serialize)]
struct Stream {
    volume: String,
    snapshot: String,
    incremental: bool,
    disk: String,
}

impl Kept {
    fn new(found: ReceiveInfo) -> Kept {
        let disk = format!("{:x}", found.info.identity.disk);
        let incremental = found.info.base.is_some();
        Kept {
            volume: found.volume,
            snapshot: found.snapshot,
            begun: unit::time(found.made),
            state: unit::state(found.state),
            position: found.position,
            bytes: found.info.bytes,
            data_bytes: found.data,
            kept_bytes: found.bytes,
            stream: Stream { volume: found.info.volume, snapshot: found.info.snapshot, incremental, disk },
        }
    }

    fn row(&self) -> Vec<String> {
        let stream = &self.stream;
        let how = if stream.incremental { "changes" } else { "all" };
        vec![
            text::safe(&format!("{}@{}", self.volume, self.snapshot)),
            self.begun.clone().unwrap_or_default(),
            self.state.to_owned(),
            self.position.to_string(),
            self.bytes.to_string(),
            text::safe(&format!("{how} of {}@{} of disk {}", stream.volume, stream.snapshot, stream.disk)),
        ]
    }
}

/// Tells of the one to a volume, or of all.
pub fn status(path: &Path, volume: Option<&str>, json: bool) -> Result<Code> {
    let found = image::closing(image::open_read_only(path)?, |disk| Ok(disk.receives()?))?;
    let asked = |kept: &ReceiveInfo| volume.is_none_or(|volume| volume == kept.volume);
    let kept: Vec<Kept> = found.into_iter().filter(asked).map(Kept::new).collect();
    if let (Some(volume), true) = (volume, kept.is_empty()) {
        let words = format!("nothing is kept of a stream to {}", text::safe(volume));
        return Err(Failure::new(Code::NotFound, words));
    }
    if json {
        output::json(&kept)?;
    } else if kept.is_empty() {
        output::line("nothing is kept of any stream")?;
    } else {
        let mut rows = vec![["TO", "BEGUN", "STATE", "POSITION", "OF", "STREAM"].map(String::from).to_vec()];
        rows.extend(kept.iter().map(Kept::row));
        output::print(&text::table(&rows))?;
    }
    Ok(Code::Done)
}
