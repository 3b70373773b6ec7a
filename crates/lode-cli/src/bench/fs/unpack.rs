//! `unpack`: a tree of many files is unpacked so that it survives the loss of power: by Lode as one transaction, of which a
//! crash leaves all or nothing; on ext4 by `tar`, and then an fsync of each file and directory, which leaves any part
//! of it.

use super::super::report::Report;
use super::super::subject::Data;
use super::super::{figure, seconds};
use super::compare::{Figure, measure};
use super::side::Side;
use super::stage::Stage;
use super::{Settings, tools, tree};
use crate::failure::{Failure, Result};

/// Runs the bench.
pub fn run(stage: &Stage, settings: &Settings) -> Result<Report> {
    tools::require(&[("tar", "tar"), ("unshare", "util-linux")])?;
    let files = settings.pick(20_000, 1000);
    let archive = tree::archive(stage, files, &Data::new())?;
    let program = std::env::current_exe().map_err(|error| Failure::io("bench-fs: finding this program", error))?;
    let judge = settings.against.unwrap_or(Side::Ext4);
    let sides = stage.sides(&[Side::Strict, Side::Relaxed, judge], judge)?;
    let figures = [Figure::high(format!("unpack {files} files durably"), "files/s", 3.0)];
    let measured = measure(stage, settings, &sides, figures.len(), |mounted| {
        mounted.cool()?;
        let point = mounted.path();
        let took = seconds(|| {
            let mut command =
                tools::command(if mounted.side().is_lode() { program.as_os_str() } else { "tar".as_ref() });
            if mounted.side().is_lode() {
                command.arg("run").arg(&point).args(["--", "tar"]);
            }
            tools::run(command.arg("-xf").arg(&archive).arg("-C").arg(&point))?;
            if mounted.side().is_lode() { Ok(()) } else { tree::sync_each(&point) }
        })?;
        Ok(vec![figure(files) / took])
    })?;
    let mut report = Report::new("unpack");
    measured.report(&mut report, &figures, judge);
    let _ = std::fs::remove_file(archive);
    Ok(report)
}
