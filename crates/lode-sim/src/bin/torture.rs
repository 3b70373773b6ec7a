//! `torture`: crashes the disk in every way, for a time, and says what it did.

use lode_sim::enumerate::{Counts, Replay, Settings, crash_class, replay};
use lode_sim::history::draw;
use lode_sim::script::ScriptId;
use lode_sim::torture::{Outcome, Plan, torture};
use lode_sim::workload::script;
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const USAGE: &str = "\
torture [--seed N] [--time 60s] [--threads N] [--min-images N] [--min-scripts N] [--short PERCENT] [--faults PERCENT]
        [--min-fault-runs N] [--concurrent PERCENT] [--min-concurrent-runs N] [--histories PERCENT]
        [--min-histories N] [--must-reach] [--unordered] [--verbose]
torture --replay STRING [--unordered]
torture --script STRING

Runs scripts and all their crashes until the time is up and the minimum is reached. A finding ends the run, is
printed with the string that replays it, and makes the exit status 1. --must-reach makes it 1 also if a branch of the
engine that such a run has to reach was not. --script prints a script's operations. --unordered lets a recovered disk
append over what a crash may have left unsynced, which the contract of media forbids.";

/// A script that takes longer hangs.
const SCRIPT_SECONDS_MAX: u64 = 120;

/// What each thread is at, and since when.
static CURRENT: LazyLock<Mutex<HashMap<ThreadId, (ScriptId, Instant)>>> = LazyLock::new(Mutex::default);

struct Arguments {
    plan: Plan,
    time: Duration,
    min_images: u64,
    min_scripts: u64,
    min_fault_runs: u64,
    min_concurrent_runs: u64,
    min_histories: u64,
    must_reach: bool,
    replay: Option<Replay>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(words) => {
            eprintln!("{words}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|panic| {
        if std::env::var_os("TORTURE_PANICS").is_some() {
            eprintln!("{panic}\n{}", std::backtrace::Backtrace::force_capture());
        }
    }));
    match &arguments.replay {
        Some(wanted) => replayed(wanted, arguments.plan.ordered),
        None => run(&arguments),
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        plan: Plan {
            seed: 1,
            threads: 2,
            short_percent: 50,
            faults_percent: 10,
            concurrent_percent: 5,
            histories_percent: 5,
            ordered: true,
            begins,
        },
        time: Duration::from_secs(60),
        min_images: 0,
        min_scripts: 0,
        min_fault_runs: 0,
        min_concurrent_runs: 0,
        min_histories: 0,
        must_reach: false,
        replay: None,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--seed" => arguments.plan.seed = number(&value()?)?,
            "--time" => arguments.time = duration(&value()?)?,
            "--threads" => {
                arguments.plan.threads = usize::try_from(number(&value()?)?.max(1)).map_err(|e| e.to_string())?
            }
            "--min-images" => arguments.min_images = number(&value()?)?,
            "--min-scripts" => arguments.min_scripts = number(&value()?)?,
            "--min-fault-runs" => arguments.min_fault_runs = number(&value()?)?,
            "--concurrent" => arguments.plan.concurrent_percent = number(&value()?)?.min(100),
            "--min-concurrent-runs" => arguments.min_concurrent_runs = number(&value()?)?,
            "--histories" => arguments.plan.histories_percent = number(&value()?)?.min(100),
            "--min-histories" => arguments.min_histories = number(&value()?)?,
            "--must-reach" => arguments.must_reach = true,
            "--short" => arguments.plan.short_percent = number(&value()?)?.min(100),
            "--faults" => arguments.plan.faults_percent = number(&value()?)?.min(100),
            "--verbose" => arguments.plan.begins = begins_aloud,
            "--unordered" => arguments.plan.ordered = false,
            "--script" => print_script(value()?.parse::<Replay>()?.script),
            "--replay" => arguments.replay = Some(value()?.parse()?),
            _ => return Err(format!("{word} is no option")),
        }
    }
    Ok(arguments)
}

fn print_script(id: ScriptId) {
    if let ScriptId::History(seed) = id {
        let (setup, clients) = draw(seed);
        println!("{setup:?}");
        for (number, steps) in clients.iter().enumerate() {
            for (at, step) in steps.iter().enumerate() {
                println!("client {number} {at:>4} {step:?}");
            }
        }
        std::process::exit(0);
    }
    for (at, op) in script(id).ops.iter().enumerate() {
        println!("{at:>4} {op:?}");
    }
    std::process::exit(0);
}

fn number(words: &str) -> Result<u64, String> {
    words.replace('_', "").parse().map_err(|_| format!("{words} is no number"))
}

fn duration(words: &str) -> Result<Duration, String> {
    let (digits, unit) = words.split_at(words.find(|c: char| !c.is_ascii_digit()).unwrap_or(words.len()));
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("{words} is no time: 60s, 5m, 1h")),
    };
    Ok(Duration::from_secs(number(digits)? * seconds))
}

fn replayed(wanted: &Replay, ordered: bool) -> ExitCode {
    if !matches!(wanted.script, ScriptId::History(_)) {
        let made = script(wanted.script);
        println!(
            "{:?}\n{:?}, {} operations, {} of them prelude",
            made.geometry,
            made.options,
            made.ops.len(),
            made.prelude
        );
        println!("{:?}", crash_class(wanted.script, ordered));
    }
    match replay(wanted, &Settings { ordered, ..Settings::of(wanted.script) }) {
        Ok(()) => {
            println!("{wanted}: nothing is wrong");
            ExitCode::SUCCESS
        }
        Err(finding) => {
            for line in &finding.story {
                println!("{line}");
            }
            println!("{}\n{}", finding.replay, finding.words);
            ExitCode::FAILURE
        }
    }
}

fn begins(id: ScriptId) {
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    current.insert(std::thread::current().id(), (id, Instant::now()));
}

fn begins_aloud(id: ScriptId) {
    eprintln!("{id}");
    begins(id);
}

/// Ends the process when a script hangs: a finding like others.
fn watch() {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let late = current.values().find(|(_, since)| since.elapsed().as_secs() > SCRIPT_SECONDS_MAX);
        if let Some((id, _)) = late {
            println!("FOUND: a script hangs\nreplay with: torture --replay {id}");
            std::process::exit(1);
        }
    }
}

fn run(arguments: &Arguments) -> ExitCode {
    let start = Instant::now();
    std::thread::spawn(watch);
    let enough = |counts: &Counts| {
        start.elapsed() >= arguments.time
            && counts.images >= arguments.min_images
            && counts.scripts >= arguments.min_scripts
            && counts.fault_runs >= arguments.min_fault_runs
            && counts.concurrent_runs >= arguments.min_concurrent_runs
            && counts.histories >= arguments.min_histories
    };
    let outcome = torture(&arguments.plan, &enough);
    print(&outcome, arguments, start.elapsed());
    let missing = if arguments.must_reach { lode_sim::marks::missing(&arguments.plan) } else { Vec::new() };
    for name in &missing {
        println!("NOT REACHED: {name}");
    }
    if outcome.findings.is_empty() && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(outcome: &Outcome, arguments: &Arguments, elapsed: Duration) {
    println!("{:<32}{:>20}", "seed", arguments.plan.seed);
    for (what, count) in outcome.counts.rows() {
        println!("{what:<32}{count:>20}");
    }
    println!("{:<32}{:>20.1}", "seconds", elapsed.as_secs_f64());
    let states = outcome.counts.states + outcome.counts.second_states;
    let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    println!("{:<32}{:>20}", "states per second", states.saturating_mul(1000) / milliseconds);
    println!("branches reached");
    for (name, count) in lode::marks() {
        println!("    {name:<60}{count:>12}");
    }
    for finding in &outcome.findings {
        println!("\nFOUND: {}\nreplay with: torture --replay {}", finding.words, finding.replay);
    }
}
