//! Every crash of a logical disk, against a reference anyone can believe.
//!
//! * [`model`]: what a disk is: a history of states, of which a crash leaves one (P1-P4).
//! * [`script`], [`workload`], [`run`]: operations drawn from a seed, done on the engine and on the model at once.
//! * [`trace`]: a medium in memory that records what the engine does to it.
//! * [`platter`], [`crash`], [`chooser`]: all images that a cut may leave, each distinguishable one made once.
//! * [`enumerate`]: for each cut of a script, every image is opened, checked, and compared; then crashed again.
//! * [`faults`]: media that fail, lie and rot.
//! * [`files`]: the file system against a model of one, and its crashes.
//! * [`history`]: what clients at once were told, judged: serializable, first committer wins, one moment.
//! * [`marks`]: the branches of the engine that all of this must have reached.
//!
//! Nothing here uses a clock or a random source: a [`enumerate::Replay`] printed on one machine fails the same on
//! another. Only runs with threads ([`script::ScriptId::Concurrent`]) do not happen twice alike.

pub mod chooser;
pub mod content;
pub mod crash;
pub mod enumerate;
pub mod faults;
pub mod files;
pub mod history;
pub mod marks;
pub mod model;
pub mod platter;
pub mod recording;
pub mod rng;
pub mod run;
pub mod script;
pub mod torture;
pub mod trace;
pub mod workload;
