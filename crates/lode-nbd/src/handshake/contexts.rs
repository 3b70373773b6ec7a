//! LIST_META_CONTEXT and SET_META_CONTEXT: which metadata contexts an export has, and which of them a client wants.
//!
//! A query is a context's whole name. When listing, it may also end in a colon and stands for all that begin with it, and
//! no query at all stands for everything. Queries that match nothing are not an error.

use super::{Haggling, Next};
use crate::{
    contexts::{Choice, numbered},
    option::{ContextRequest, OptionHeader, decode_contexts},
    transmission::End,
    wire::{OptionReply, narrow, options},
};

impl Haggling<'_> {
    pub(super) fn contexts(&mut self, header: OptionHeader, data: &[u8]) -> Result<Next, End> {
        let set = header.code == options::SET_META_CONTEXT;
        if set {
            self.choice = None;
        }
        if !self.structured {
            return Ok(self.reply(header, OptionReply::ErrInvalid, &[]));
        }
        let mut request = match decode_contexts(data, self.string_bytes()) {
            Ok(request) => request,
            Err(fault) => return Ok(self.fault(header, fault)),
        };
        // Found by searching: there may be thousands of queries, and of names.
        request.queries.sort_unstable();
        if set { Ok(self.choose(header, &request)) } else { self.show(header, &request) }
    }

    /// The contexts of an export and their numbers. Whether it exists is said when it is opened, and not told here (N4).
    fn offered(&self, name: &str) -> impl Iterator<Item = (u32, String)> + use<> {
        let others = self.full_name(name).and_then(|name| self.exports.contexts(&name));
        let carried = narrow(self.string_bytes());
        // A name that no option could carry cannot be asked for either.
        numbered(others.unwrap_or_default()).filter(move |(_, name)| name.len() <= carried)
    }

    fn show(&mut self, header: OptionHeader, request: &ContextRequest<'_>) -> Result<Next, End> {
        for (_, name) in self.offered(request.name) {
            if request.queries.is_empty() || is_listed(&name, &request.queries) {
                // Numbers are given when contexts are chosen.
                self.reply(header, OptionReply::MetaContext, &[&[0; 4], name.as_bytes()]);
                self.send_much()?;
            }
        }
        Ok(self.reply(header, OptionReply::Ack, &[]))
    }

    fn choose(&mut self, header: OptionHeader, request: &ContextRequest<'_>) -> Next {
        let max = self.link.shared.limits.contexts;
        let wanted =
            self.offered(request.name).filter(|(_, name)| request.queries.binary_search(&name.as_str()).is_ok());
        let names: Vec<_> = wanted.take(max.saturating_add(1)).collect();
        if names.len() > max {
            return self.reply(header, OptionReply::ErrTooBig, &[]);
        }
        for (id, name) in &names {
            self.reply(header, OptionReply::MetaContext, &[&id.to_be_bytes(), name.as_bytes()]);
        }
        self.choice = Some(Choice { export: request.name.to_owned(), names });
        self.reply(header, OptionReply::Ack, &[])
    }
}

/// Whether a query is the name, or a beginning of it up to a colon.
fn is_listed(name: &str, queries: &[&str]) -> bool {
    let beginnings = name.match_indices(':').map(|(at, colon)| &name[..at + colon.len()]);
    beginnings.chain([name]).any(|part| queries.binary_search(&part).is_ok())
}
