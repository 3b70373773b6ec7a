//! The log: what the record stream and the side streams write, and how it is read again.
//!
//! * `writer`: the record stream in memory: the open batch, sealed batches on their way, what is durable.
//! * `side`: streams of data only (moved blocks, the two copies of tables).
//! * `reader`: batches, footers and segments as they lie on the medium.

pub(crate) mod reader;
pub(crate) mod side;
pub(crate) mod writer;
