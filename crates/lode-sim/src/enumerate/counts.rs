//! What was done, for the table that a run prints.

use std::ops::AddAssign;

/// Numbers of one script, or of many together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Scripts run.
    pub scripts: u64,
    /// Operations done by them.
    pub ops: u64,
    /// Operations refused because the disk was full, with nothing changed.
    pub full: u64,
    /// Commits refused for a conflict, as the model said.
    pub conflicts: u64,
    /// Streams received.
    pub received: u64,
    /// Bytes compared while they ran.
    pub compared: u64,
    /// Points of the traces at which the power was cut.
    pub cuts: u64,
    /// Those of which every distinguishable image was opened.
    pub complete_cuts: u64,
    /// Images opened after a first crash.
    pub states: u64,
    /// Different images among all opened ones: those that differ in what recovery read of them, counted by script.
    pub images: u64,
    /// Lives after a crash that were crashed again.
    pub second_traces: u64,
    /// Images opened after a second crash.
    pub second_states: u64,
    /// Images checked from the medium alone.
    pub checked: u64,
    /// Images written on, killed and opened again.
    pub lived_on: u64,
    /// How many images there are at the cuts made, sector by sector: what the ones opened stand for.
    pub raw_images: f64,
    /// Runs with clients in threads.
    pub concurrent_runs: u64,
    /// Histories of clients at once that were judged.
    pub histories: u64,
    /// Runs on media that fail.
    pub fault_runs: u64,
    /// Faults that these media did.
    pub faults: u64,
    /// Damaged disks that were repaired, written on and opened again.
    pub repairs: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.scripts += more.scripts;
        self.ops += more.ops;
        self.full += more.full;
        self.conflicts += more.conflicts;
        self.received += more.received;
        self.compared += more.compared;
        self.cuts += more.cuts;
        self.complete_cuts += more.complete_cuts;
        self.states += more.states;
        self.images += more.images;
        self.second_traces += more.second_traces;
        self.second_states += more.second_states;
        self.checked += more.checked;
        self.lived_on += more.lived_on;
        self.raw_images += more.raw_images;
        self.concurrent_runs += more.concurrent_runs;
        self.histories += more.histories;
        self.fault_runs += more.fault_runs;
        self.faults += more.faults;
        self.repairs += more.repairs;
    }
}

impl Counts {
    /// The table, without times.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        vec![
            ("scripts", self.scripts.to_string()),
            ("operations", self.ops.to_string()),
            ("refused as full", self.full.to_string()),
            ("commits refused as conflicts", self.conflicts.to_string()),
            ("streams received", self.received.to_string()),
            ("bytes compared while running", self.compared.to_string()),
            ("cut points", self.cuts.to_string()),
            ("cut points exhausted", self.complete_cuts.to_string()),
            ("states (first crash)", self.states.to_string()),
            ("traces crashed again", self.second_traces.to_string()),
            ("states (second crash)", self.second_states.to_string()),
            ("different images", self.images.to_string()),
            ("raw images represented", format!("{:.1e}", self.raw_images)),
            ("checked from the medium", self.checked.to_string()),
            ("written on and reopened", self.lived_on.to_string()),
            ("runs with threads", self.concurrent_runs.to_string()),
            ("histories judged", self.histories.to_string()),
            ("runs on failing media", self.fault_runs.to_string()),
            ("faults done", self.faults.to_string()),
            ("repaired and written on", self.repairs.to_string()),
        ]
    }
}
