//! Exports in memory: the naive twin of an engine, for tests and for measuring the server alone.
//!
//! One lock around pages that are allocated when written. Nothing survives anything.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;

use crate::{
    error::{ExportError, ExportErrorKind},
    export::{Durability, Export, Exports},
    wire::wide,
};

const PAGE: usize = 64 << 10;

/// A disk in memory; what was never written takes none.
#[derive(Debug)]
pub struct MemoryExport {
    size: u64,
    read_only: bool,
    pages: RwLock<Vec<Option<Box<[u8]>>>>,
}

/// Named disks in memory.
#[derive(Default)]
pub struct MemoryExports {
    exports: BTreeMap<String, Arc<dyn Export>>,
}

impl MemoryExport {
    /// A disk of `size` bytes, all zero.
    pub fn new(size: u64) -> Self {
        let pages = usize::try_from(size.div_ceil(wide(PAGE))).unwrap_or(usize::MAX);
        MemoryExport { size, read_only: false, pages: RwLock::new(vec![None; pages]) }
    }

    /// The same disk, refusing changes.
    #[must_use]
    pub fn into_read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Goes through the pages that a range touches: page number, offset in it, offset in the range, bytes.
    fn spans(offset: u64, bytes: u64) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let left = bytes - done;
            let at = offset + done;
            let within = at % wide(PAGE);
            let span = left.min(wide(PAGE) - within);
            let place = |number: u64| usize::try_from(number).expect("the range is in memory");
            let found = (place(at / wide(PAGE)), place(within), place(done), place(span));
            done += span;
            (span > 0).then_some(found)
        })
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<(), ExportError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(ExportError::new(ExportErrorKind::Invalid, format!("{bytes} bytes at {offset} are out of range"))),
        }
    }
}

impl MemoryExports {
    /// One disk of `size` bytes.
    pub fn with(name: &str, size: u64) -> Self {
        Self::default().and(name, Arc::new(MemoryExport::new(size)))
    }

    /// One more export, of whatever kind.
    #[must_use]
    pub fn and(mut self, name: &str, export: Arc<dyn Export>) -> Self {
        self.exports.insert(name.to_owned(), export);
        self
    }
}

impl Exports for MemoryExports {
    fn list(&self) -> Result<Vec<String>, ExportError> {
        Ok(self.exports.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Export>, ExportError> {
        let found = self.exports.get(name).cloned();
        found.ok_or_else(|| ExportError::new(ExportErrorKind::Unknown, format!("there is no export {name:?}")))
    }
}

impl Export for MemoryExport {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn preferred_block(&self) -> u32 {
        4096
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        self.check(offset, wide(into.len()))?;
        let pages = self.pages.read();
        for (page, within, at, span) in Self::spans(offset, wide(into.len())) {
            match &pages[page] {
                Some(page) => into[at..at + span].copy_from_slice(&page[within..within + span]),
                None => into[at..at + span].fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], _until: Durability) -> Result<(), ExportError> {
        self.check(offset, wide(data.len()))?;
        let mut pages = self.pages.write();
        for (page, within, at, span) in Self::spans(offset, wide(data.len())) {
            let page = pages[page].get_or_insert_with(|| vec![0; PAGE].into_boxed_slice());
            page[within..within + span].copy_from_slice(&data[at..at + span]);
        }
        Ok(())
    }

    fn zero(&self, offset: u64, bytes: u64, may_punch: bool, _until: Durability) -> Result<(), ExportError> {
        self.check(offset, bytes)?;
        let mut pages = self.pages.write();
        for (page, within, _, span) in Self::spans(offset, bytes) {
            let page = &mut pages[page];
            if may_punch && span == PAGE {
                *page = None;
            } else if !may_punch || page.is_some() {
                let page = page.get_or_insert_with(|| vec![0; PAGE].into_boxed_slice());
                page[within..within + span].fill(0);
            }
        }
        Ok(())
    }

    fn trim(&self, offset: u64, bytes: u64, until: Durability) -> Result<(), ExportError> {
        self.zero(offset, bytes, true, until)
    }

    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<(u64, bool)>, ExportError> {
        self.check(offset, bytes)?;
        let pages = self.pages.read();
        Ok(Self::spans(offset, bytes).map(|(page, _, _, span)| (wide(span), pages[page].is_some())).collect())
    }
}
