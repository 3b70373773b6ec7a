//! `lode inspect`: what the medium holds, as the engine tells it, one value after another.

use crate::failure::{Code, Result};
use crate::{image, output, size, text};
use clap::ValueEnum;
use lode::Disk;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  lode inspect disk.lode
  lode inspect disk.lode records | less
  lode inspect disk.lode segments --json | jq '[.[] | select(.holds == \"main\")] | length'

The disk is not written to.";

/// What `lode inspect` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// What to show
    #[arg(value_enum, default_value_t = What::Segments)]
    what: What,
    /// Print JSON: a list
    #[arg(long)]
    json: bool,
}

/// What can be looked at.
#[derive(Clone, Copy, ValueEnum)]
pub enum What {
    /// The zones, and the segments of the log in them
    Segments,
    /// The batches of the segments
    Batches,
    /// The batches with their records
    Records,
    /// The lists (volumes)
    Lists,
}

/// Shows it.
pub fn run(arguments: &Arguments) -> Result<Code> {
    image::closing(image::open_read_only(&arguments.disk)?, |disk| {
        let mut values = Values::new(arguments.json)?;
        match arguments.what {
            What::Segments => segments(disk, &mut values)?,
            What::Batches => batches(disk, &mut values, false)?,
            What::Records => batches(disk, &mut values, true)?,
            What::Lists => lists(disk, &mut values)?,
        }
        values.finish()?;
        Ok(Code::Done)
    })
}

/// Prints values one after another, so that a large disk needs no large memory.
struct Values {
    json: bool,
    count: u64,
}

impl Values {
    fn new(json: bool) -> Result<Values> {
        if json {
            output::print("[")?;
        }
        Ok(Values { json, count: 0 })
    }

    fn add(&mut self, words: &str, value: &impl Serialize) -> Result<()> {
        self.count += 1;
        if !self.json {
            return output::line(words);
        }
        let comma = if self.count > 1 { "," } else { "" };
        let value = serde_json::to_string(value).unwrap_or_default();
        output::print(&format!("{comma}\n{value}"))
    }

    fn finish(self) -> Result<()> {
        if self.json { output::line("\n]") } else { Ok(()) }
    }
}

fn segments(disk: &Disk, values: &mut Values) -> Result<()> {
    for zone in disk.inspect_segments() {
        let words = format!(
            "zone {:<6} {:<9} segment {:<8} {} live in {} blocks",
            zone.zone,
            zone.holds,
            zone.segment,
            size::show(zone.live),
            zone.blocks
        );
        let value = json!({
            "zone": zone.zone,
            "holds": zone.holds,
            "segment": zone.segment,
            "live_bytes": zone.live,
            "live_blocks": zone.blocks,
        });
        values.add(&words, &value)?;
    }
    Ok(())
}

fn batches(disk: &Disk, values: &mut Values, with_records: bool) -> Result<()> {
    let mut outcome = Ok(());
    disk.inspect_batches(&mut |batch| {
        if outcome.is_err() {
            return;
        }
        let mut words = format!(
            "zone {:<6} offset {:<10} sequence {:<10} {} bytes, {} records from position {}",
            batch.zone, batch.offset, batch.sequence, batch.bytes, batch.records, batch.first_lsn
        );
        let mut value = json!({
            "zone": batch.zone,
            "offset": batch.offset,
            "bytes": batch.bytes,
            "sequence": batch.sequence,
            "first_position": batch.first_lsn,
            "records": batch.records,
            "continues": batch.continues,
            "from_footer": batch.from_footer,
        });
        if with_records {
            for record in &batch.content {
                words.push_str("\n    ");
                words.push_str(&text::safe(record));
            }
            value["content"] = batch.content.iter().map(|record| Value::from(record.as_str())).collect();
        }
        outcome = values.add(&words, &value);
    })?;
    outcome
}

fn lists(disk: &Disk, values: &mut Values) -> Result<()> {
    let loaded = disk.inspect_lists();
    for volume in disk.volumes()? {
        let leaves = loaded.iter().find(|(name, ..)| *name == volume.name);
        let (loaded, cold) = leaves.map_or((0, 0), |(_, loaded, cold)| (*loaded, *cold));
        let words = format!(
            "list {:<6} {} of {} in blocks of {}, {} blocks stored; leaves of its map: {loaded} in memory, {cold} not",
            volume.list.0,
            text::safe(&volume.name),
            size::show(volume.bytes),
            size::show(volume.block_bytes.into()),
            volume.mapped_blocks
        );
        let value = json!({
            "list": volume.list.0,
            "name": volume.name,
            "bytes": volume.bytes,
            "block_bytes": volume.block_bytes,
            "mapped_blocks": volume.mapped_blocks,
            "leaves_loaded": loaded,
            "leaves_cold": cold,
        });
        values.add(&words, &value)?;
    }
    Ok(())
}
