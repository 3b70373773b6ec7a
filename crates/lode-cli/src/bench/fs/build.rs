//! `build`: a C project is unpacked, configured and made, as programmers do all day.

use super::super::report::{Better, Report};
use super::super::seconds;
use super::compare::{Figure, measure};
use super::side::Side;
use super::stage::Stage;
use super::{Settings, tools};
use crate::failure::Result;

/// Runs the bench.
pub fn run(stage: &Stage, settings: &Settings) -> Result<Report> {
    tools::require(&[("tar", "tar"), ("make", "make"), ("cc", "gcc")])?;
    let archive = tools::brought(settings, "project.tar")?;
    let judge = settings.against.unwrap_or(Side::Ext4);
    let sides = stage.sides(&Side::ALL, judge)?;
    let (case, better) = ("unpack, configure and make a C project".into(), Better::Lower);
    let figures = [Figure { case, unit: "s", better, bar: 1.05 }];
    let jobs = format!("-j{}", std::thread::available_parallelism().map_or(2, std::num::NonZero::get));
    // The first one to compile would find the compiler on the disk, the others in memory.
    tools::run(tools::command("cc").args(["-E", "-x", "c", "/dev/null"]))?;
    let measured = measure(stage, settings, &sides, figures.len(), |mounted| {
        let point = mounted.path();
        let took = seconds(|| {
            let mut unpack = tools::command("tar");
            tools::run(unpack.arg("-xf").arg(&archive).arg("-C").arg(&point).arg("--strip-components=1"))?;
            let mut configure = tools::command("./configure");
            // It would not be run by root otherwise.
            tools::run(configure.arg("--quiet").env("FORCE_UNSAFE_CONFIGURE", "1").current_dir(&point))?;
            if !settings.common.quick {
                tools::run(tools::command("make").arg("--silent").arg(&jobs).current_dir(&point))?;
            }
            mounted.sync()
        })?;
        Ok(vec![took])
    })?;
    let mut report = Report::new("build");
    measured.report(&mut report, &figures, judge);
    Ok(report)
}
