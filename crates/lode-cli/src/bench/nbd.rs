//! `nbd`: fio against `lode serve`, nbdkit's file plugin, and qemu-nbd.

mod servers;

use super::Settings;
use super::place::Places;
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use crate::failure::{Code, Failure, Result};
use servers::{Server, Servers};
use std::process::Command;

/// One fio job, and the bars against nbdkit and qemu.
struct Job {
    name: &'static str,
    unit: &'static str,
    arguments: &'static [&'static str],
    /// The member of fio's report, and the factor from it to `unit`.
    figure: (&'static str, &'static str, f64),
    nbdkit: Option<f64>,
    qemu: Option<f64>,
}

const WRITE: (&str, &str, f64) = ("write", "iops", 1.0);
const READ: (&str, &str, f64) = ("read", "iops", 1.0);

const JOBS: [Job; 6] = [
    Job {
        name: "4 KiB random write + flush, depth 1",
        unit: "IOPS",
        arguments: &["--rw=randwrite", "--bs=4k", "--iodepth=1", "--fsync=1"],
        figure: WRITE,
        nbdkit: Some(1.5),
        qemu: Some(1.2),
    },
    Job {
        name: "4 KiB random write, depth 1",
        unit: "IOPS",
        arguments: &["--rw=randwrite", "--bs=4k", "--iodepth=1"],
        figure: WRITE,
        nbdkit: None,
        qemu: Some(1.2),
    },
    Job {
        name: "4 KiB random write, depth 32",
        unit: "IOPS",
        arguments: &["--rw=randwrite", "--bs=4k", "--iodepth=32"],
        figure: WRITE,
        nbdkit: Some(0.85),
        qemu: Some(1.5),
    },
    Job {
        name: "1 MiB write in order, depth 4",
        unit: "MB/s",
        arguments: &["--rw=write", "--bs=1m", "--iodepth=4"],
        figure: ("write", "bw_bytes", 1e-6),
        nbdkit: None,
        qemu: Some(1.0),
    },
    Job {
        name: "4 KiB random read, cold, depth 1",
        unit: "IOPS",
        arguments: &["--rw=randread", "--bs=4k", "--iodepth=1"],
        figure: READ,
        nbdkit: None,
        qemu: Some(1.2),
    },
    Job {
        name: "4 KiB random read, hot, depth 1",
        unit: "IOPS",
        arguments: &["--rw=randread", "--bs=4k", "--iodepth=1", "--size=16m"],
        figure: READ,
        nbdkit: Some(0.8),
        qemu: None,
    },
];

/// Runs the bench.
pub fn run(settings: &Settings) -> Result<Report> {
    servers::require(&[("fio", "fio"), ("nbdkit", "nbdkit"), ("qemu-nbd", "qemu-utils")])?;
    if settings.device.is_some() {
        return Err(Failure::usage("bench nbd: expected --dir, since the servers are given files, found --device"));
    }
    let bytes = settings.pick(2 << 30, 128 << 20);
    let mut places = Places::new(settings);
    let disk = places.take("disk", bytes * 3)?;
    let peer = places.take("raw", bytes)?;
    let subject = Subject::in_place(&disk, bytes)?;
    subject.write_in_order(&Data::new())?;
    subject.close()?;
    let servers = Servers::start(settings, &disk.path, &peer.path)?;
    let mut report = Report::new("nbd");
    for job in &JOBS {
        measure(settings, job, &servers, &mut report)?;
    }
    Ok(report)
}

fn measure(settings: &Settings, job: &Job, servers: &Servers, report: &mut Report) -> Result<()> {
    let mut wanted: Vec<&Server> = vec![&servers.lode];
    wanted.extend(job.nbdkit.map(|_| &servers.nbdkit));
    if job.qemu.is_some() {
        wanted.extend(&servers.qemu);
    }
    let mut samples: Vec<Samples> = wanted.iter().map(|_| Samples::default()).collect();
    // Once unmeasured: what is to be hot is read, and each server has served.
    for server in &wanted {
        fio(job, server, 0.3)?;
    }
    for round in 0..settings.rounds {
        for turn in 0..wanted.len() {
            let which = (turn + usize::try_from(round).unwrap_or(0)) % wanted.len();
            samples[which].push(fio(job, wanted[which], settings.pick(1.2, 0.3))?);
        }
    }
    let mut sides = wanted.iter().map(|server| server.name).zip(samples);
    let Some((_, lode)) = sides.next() else { return Ok(()) };
    let sides: Vec<(&str, Samples)> = sides.collect();
    for (peer, bar) in [("nbdkit", job.nbdkit), ("qemu", job.qemu)] {
        let best = sides.iter().filter(|(name, _)| name.starts_with(peer));
        let best = best.max_by(|a, b| a.1.median().total_cmp(&b.1.median()));
        if let (Some(bar), Some((name, samples))) = (bar, best) {
            let case = format!("{}, {peer}", job.name);
            let peer = (*name, samples.clone());
            report.cases.push(Case::against(case, job.unit, lode.clone(), peer, Better::Higher, bar));
        }
    }
    Ok(())
}

/// One run of fio. Returns its figure.
fn fio(job: &Job, server: &Server, seconds: f64) -> Result<f64> {
    let failed = |words: String| Failure::new(Code::Io, format!("bench nbd: fio on {}: {words}", server.name));
    let milliseconds = format!("--runtime={:.0}ms", seconds * 1e3);
    let output = Command::new("fio")
        .args([
            "--name=lode",
            "--ioengine=nbd",
            "--output-format=json",
            "--time_based",
            "--randrepeat=0",
            "--norandommap",
        ])
        .arg(milliseconds)
        .arg(format!("--uri={}", server.uri))
        .args(job.arguments)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())));
    }
    // fio may put remarks in front of its report.
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |start| &text[start..]);
    let report: serde_json::Value = serde_json::from_str(json).map_err(|error| failed(error.to_string()))?;
    let (side, member, factor) = job.figure;
    let found = &report["jobs"][0][side][member];
    found.as_f64().map(|found| found * factor).ok_or_else(|| failed(format!("expected {side}.{member}, found {found}")))
}
