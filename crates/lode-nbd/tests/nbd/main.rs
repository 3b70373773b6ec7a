//! The server as its clients see it: the protocol's rules, hostile and slow peers, real clients.

mod abuse;
mod contexts;
mod drain;
mod interop;
mod load;
mod promise;
mod protocol;
mod support;
