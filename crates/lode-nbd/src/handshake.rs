//! The handshake: from an accepted socket to a chosen export, with a type for each phase.
//!
//! ```text
//!   Greeting ── flags ──▶ Haggling ── GO, EXPORT_NAME ──▶ Chosen
//!                          │    ▲
//!                          └────┘ every other option
//! ```
//!
//! Until there is a [`Chosen`], a connection holds its socket and one buffer for an option's data, and no export (N4).

use std::{io, sync::Arc};

use crate::{
    contexts::{Choice, Contexts},
    error::{ExportError, ExportErrorKind, ProtocolError},
    export::{Export, Exports},
    link::Link,
    option::{
        OptionFault, OptionHeader, decode_client_flags, decode_info, decode_name, decode_option, encode_greeting,
        encode_option_reply,
    },
    terms::Terms,
    transmission::End,
    wire::{OPTION_HEADER_BYTES, OptionReply, info, narrow, options},
};

/// An export that a client chose, and what was agreed about it.
pub(crate) struct Chosen {
    pub(crate) export: Arc<dyn Export>,
    pub(crate) terms: Terms,
    pub(crate) contexts: Contexts,
}

/// Before the client has sent anything.
pub(crate) struct Greeting<'a> {
    link: &'a Link,
    exports: &'a dyn Exports,
}

/// Options go back and forth.
pub(crate) struct Haggling<'a> {
    link: &'a Link,
    exports: &'a dyn Exports,
    no_zeroes: bool,
    structured: bool,
    /// The metadata contexts that were chosen last.
    choice: Option<Choice>,
    data: Vec<u8>,
    out: Vec<u8>,
}

/// What an option leads to.
enum Next {
    Haggle,
    Chosen(Chosen),
    Over,
}

impl<'a> Greeting<'a> {
    pub(crate) fn new(link: &'a Link, exports: &'a dyn Exports) -> Self {
        Greeting { link, exports }
    }

    /// Greets, and takes the client's flags; `None` if it has left.
    pub(crate) fn greet(self) -> Result<Option<Haggling<'a>>, End> {
        self.link.send_bytes(&encode_greeting())?;
        let mut flags = [0; 4];
        if !self.link.receive_all(&mut flags)? {
            return Ok(None);
        }
        Ok(Some(Haggling {
            link: self.link,
            exports: self.exports,
            no_zeroes: decode_client_flags(flags)?,
            structured: false,
            choice: None,
            data: Vec::new(),
            out: Vec::new(),
        }))
    }
}

impl Haggling<'_> {
    /// Answers options until an export is chosen; `None` if the client leaves.
    pub(crate) fn haggle(mut self) -> Result<Option<Chosen>, End> {
        for _ in 0..self.link.shared.limits.options {
            let mut header = [0; OPTION_HEADER_BYTES];
            if !self.link.receive_all(&mut header)? {
                return Ok(None);
            }
            let Some(header) = decode_option(&header)? else { return Ok(None) };
            let next = if self.take_data(header.length)? {
                self.answer(header)?
            } else if header.code == options::EXPORT_NAME {
                return Err(ProtocolError::ExportName.into());
            } else {
                self.reply(header, OptionReply::ErrTooBig, &[]);
                Next::Haggle
            };
            if !self.out.is_empty() {
                self.link.send_bytes(&self.out)?;
                self.out.clear();
            }
            match next {
                Next::Haggle => {}
                Next::Chosen(chosen) => return Ok(Some(chosen)),
                Next::Over => return Ok(None),
            }
        }
        Err(ProtocolError::OptionCount.into())
    }

    /// Receives an option's data; false if it was too long and skipped.
    fn take_data(&mut self, length: u32) -> Result<bool, End> {
        let max = self.link.shared.limits.option_bytes;
        if length <= max {
            self.data.resize(narrow(length), 0);
            let whole = self.data.is_empty() || self.link.receive_all(&mut self.data)?;
            return if whole { Ok(true) } else { Err(End::Socket) };
        }
        if length > max.saturating_mul(16) {
            return Err(ProtocolError::OptionLength(length).into());
        }
        self.data.resize(narrow(max), 0);
        let mut left = length;
        while left > 0 {
            let some = left.min(max);
            if !self.link.receive_all(&mut self.data[..narrow(some)])? {
                return Err(End::Socket);
            }
            left -= some;
        }
        Ok(false)
    }

    fn answer(&mut self, header: OptionHeader) -> Result<Next, End> {
        let data = std::mem::take(&mut self.data);
        let next = match header.code {
            options::EXPORT_NAME => self.export_name(&data)?,
            options::GO | options::INFO => self.info(header, &data),
            options::LIST_META_CONTEXT | options::SET_META_CONTEXT => self.contexts(header, &data)?,
            options::ABORT => {
                self.reply(header, OptionReply::Ack, &[]);
                Next::Over
            }
            options::LIST => self.list(header, &data)?,
            options::STRUCTURED_REPLY => {
                self.structured |= data.is_empty();
                let reply = if data.is_empty() { OptionReply::Ack } else { OptionReply::ErrInvalid };
                self.reply(header, reply, &[])
            }
            // STARTTLS too: this server has no TLS, and so no state from before it to forget.
            _ => self.reply(header, OptionReply::ErrUnsup, &[]),
        };
        self.data = data;
        Ok(next)
    }

    fn reply(&mut self, header: OptionHeader, reply: OptionReply, parts: &[&[u8]]) -> Next {
        encode_option_reply(&mut self.out, header.code, reply, parts);
        Next::Haggle
    }

    fn fault(&mut self, header: OptionHeader, fault: OptionFault) -> Next {
        let reply = match fault {
            OptionFault::Malformed => OptionReply::ErrInvalid,
            OptionFault::TooLong => OptionReply::ErrTooBig,
        };
        self.reply(header, reply, &[])
    }

    /// Sends what has gathered if it is much, so that a long list takes no memory.
    fn send_much(&mut self) -> io::Result<()> {
        if self.out.len() > 64 << 10 {
            self.link.send_bytes(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    fn string_bytes(&self) -> u32 {
        self.link.shared.limits.string_bytes
    }

    /// Opens an export. The empty name means the only one, if there is exactly one.
    fn open(&self, name: &str) -> Result<(String, Arc<dyn Export>), ExportError> {
        let name = self.full_name(name)?;
        let export = self.exports.open(&name)?;
        Ok((name, export))
    }

    fn full_name(&self, name: &str) -> Result<String, ExportError> {
        if !name.is_empty() {
            return Ok(name.to_owned());
        }
        let only = <[String; 1]>::try_from(self.exports.list()?);
        let none = |_| ExportError::new(ExportErrorKind::Unknown, "there is no default export");
        only.map(|[only]| only).map_err(none)
    }

    /// What is agreed about an export that the client called `asked`.
    fn agree(&self, asked: &str, export: Arc<dyn Export>) -> Result<Chosen, ExportError> {
        let contexts = match &self.choice {
            Some(choice) if choice.export == asked => Contexts::of(choice, &*export)?,
            _ => Contexts::default(),
        };
        let limits = &self.link.shared.limits;
        let terms = Terms::of(&*export, limits.payload_bytes, self.structured, !contexts.is_empty());
        Ok(Chosen { export, terms, contexts })
    }

    fn export_name(&mut self, data: &[u8]) -> Result<Next, End> {
        let asked = decode_name(data, self.string_bytes()).map_err(|_| ProtocolError::ExportName)?;
        let (_, export) = self.open(asked).map_err(|_| ProtocolError::ExportName)?;
        let chosen = self.agree(asked, export).map_err(|_| ProtocolError::ExportName)?;
        self.out.extend_from_slice(&chosen.terms.size.to_be_bytes());
        self.out.extend_from_slice(&chosen.terms.flags().to_be_bytes());
        if !self.no_zeroes {
            self.out.extend_from_slice(&[0; 124]);
        }
        Ok(Next::Chosen(chosen))
    }

    fn info(&mut self, header: OptionHeader, data: &[u8]) -> Next {
        let request = match decode_info(data, self.string_bytes()) {
            Ok(request) => request,
            Err(fault) => return self.fault(header, fault),
        };
        let opened = self.open(request.name);
        let opened = opened.and_then(|(name, export)| Ok((name, self.agree(request.name, export)?)));
        let (name, chosen) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.reply(header, error.option_reply(), &[]),
        };
        let terms = &chosen.terms;
        let (size, flags) = (terms.size.to_be_bytes(), terms.flags().to_be_bytes());
        self.reply(header, OptionReply::Info, &[&info::EXPORT.to_be_bytes(), &size, &flags]);
        if request.wants(info::NAME) {
            self.reply(header, OptionReply::Info, &[&info::NAME.to_be_bytes(), name.as_bytes()]);
        }
        let sizes = [terms.minimum_block, terms.preferred_block, terms.payload_bytes_max].map(u32::to_be_bytes);
        self.reply(header, OptionReply::Info, &[&info::BLOCK_SIZE.to_be_bytes(), &sizes.concat()]);
        self.reply(header, OptionReply::Ack, &[]);
        if header.code == options::GO { Next::Chosen(chosen) } else { Next::Haggle }
    }

    fn list(&mut self, header: OptionHeader, data: &[u8]) -> Result<Next, End> {
        if !data.is_empty() {
            return Ok(self.reply(header, OptionReply::ErrInvalid, &[]));
        }
        let names = match self.exports.list() {
            Ok(names) => names,
            Err(error) => return Ok(self.reply(header, error.option_reply(), &[])),
        };
        for name in names {
            let Ok(length) = u32::try_from(name.len()) else { continue };
            // A name that no option could carry cannot be asked for either.
            if length <= self.string_bytes() {
                self.reply(header, OptionReply::Server, &[&length.to_be_bytes(), name.as_bytes()]);
            }
            self.send_much()?;
        }
        Ok(self.reply(header, OptionReply::Ack, &[]))
    }
}

mod contexts;
