//! Mounts over each way that requests of the kernel can come: `/dev/fuse`, and rings of io_uring.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::sync::{Mutex, Once};

/// The switch for rings. Only root may change it, and it counts for the whole machine.
pub const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

thread_local! {
    /// The option that mounts of this test get: each test has a thread of its own.
    static OPTION: Cell<&'static str> = const { Cell::new("noring") };
}

/// The option of `lode mount` for the way that is tested now.
pub fn option() -> &'static str {
    OPTION.get()
}

/// Whether it is a ring.
pub fn has_ring() -> bool {
    option() == "ring"
}

/// Does a test over each way that this kernel has. Fails if it has rings but they can not be switched on.
pub fn over_each(test: impl Fn()) {
    OPTION.set("noring");
    test();
    match SwitchedOn::new() {
        Some(_on) => {
            OPTION.set("ring");
            test();
        }
        None => decided_without(),
    }
}

/// Says, also where what tests print is not shown, what is not tested.
fn decided_without() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let words = format!(
            "\nThis kernel has no FUSE over io_uring ({SWITCH} is not there; Linux 6.14 has it): mounts are tested over /dev/fuse only.\n"
        );
        std::io::stderr().write_all(words.as_bytes()).unwrap();
    });
}

/// How many tests need the switch now, and what it was before the first of them.
static NEEDED: Mutex<(usize, String)> = Mutex::new((0, String::new()));

/// Rings are switched on until the last of these is dropped.
struct SwitchedOn;

impl SwitchedOn {
    /// None: this kernel has no rings.
    fn new() -> Option<SwitchedOn> {
        let mut needed = NEEDED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if needed.0 == 0 {
            let before = fs::read_to_string(SWITCH).ok()?.trim().to_owned();
            if before != "Y" {
                fs::write(SWITCH, "Y").unwrap_or_else(|error| {
                    panic!("expected to be root, to switch on rings for these tests, or to find them on: echo Y > {SWITCH}: {error}")
                });
            }
            needed.1 = before;
        }
        needed.0 += 1;
        Some(SwitchedOn)
    }
}

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        let mut needed = NEEDED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        needed.0 -= 1;
        if needed.0 == 0 && needed.1 != "Y" {
            let _ = fs::write(SWITCH, &needed.1);
        }
    }
}
