//! Writes the bytes of a stream. It knows nothing of disks.

use super::{StreamInfo, failed};
use crate::error::Result;
use crate::format::crc;
use crate::format::records::Compression;
use crate::format::stream::{
    END_MAGIC, MAGIC, PIECE_BYTES_MAX, PIECE_MAGIC, StreamEnd, StreamHead, StreamIdentity, StreamPiece, Sum, VERSION,
};
use crate::types::{index, len_u32, len_u64};
use std::io::Write;

pub(super) struct StreamWriter<'a> {
    into: &'a mut dyn Write,
    compression: Compression,
    packed: Vec<u8>,
    sum: Sum,
    /// Where in the volume the next piece begins.
    pub position: u64,
    pieces: u64,
    /// Bytes that the pieces bring.
    pub data: u64,
    /// Bytes of the stream.
    pub written: u64,
}

/// What a stream begins with.
pub(super) fn head_of(info: &StreamInfo) -> Vec<u8> {
    let head = StreamHead {
        magic: MAGIC,
        version: VERSION,
        block_shift: u8::try_from(info.block_bytes.ilog2()).expect("at most 31"),
        compression: info.compression.code(),
        incremental: u32::from(info.base.is_some()),
        bytes: info.bytes,
        position: info.position,
        name: len_u32(info.volume.len()),
        snapshot_name: len_u32(info.snapshot.len()),
    };
    let mut bytes = Vec::new();
    head.push_to(&mut bytes);
    info.identity.record().push_to(&mut bytes);
    info.base.map_or_else(StreamIdentity::default, |base| base.record()).push_to(&mut bytes);
    bytes.extend_from_slice(info.volume.as_bytes());
    bytes.extend_from_slice(info.snapshot.as_bytes());
    let checksum = crc(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

impl<'a> StreamWriter<'a> {
    /// Begins a stream. `compression`: of what is sent.
    pub fn begin(into: &'a mut dyn Write, info: &StreamInfo, compression: Compression) -> Result<StreamWriter<'a>> {
        let mut writer = StreamWriter {
            into,
            compression,
            packed: Vec::new(),
            sum: Sum::new(),
            position: info.position,
            pieces: 0,
            data: 0,
            written: 0,
        };
        writer.put(&head_of(info))?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.sum.add(bytes);
        self.written += len_u64(bytes.len());
        self.into.write_all(bytes).map_err(|error| failed("writing", &error))
    }

    fn piece(&mut self, kind: u32, length: u64, stored: &[u8]) -> Result<()> {
        let piece = StreamPiece {
            magic: PIECE_MAGIC,
            kind,
            offset: self.position,
            length,
            stored: len_u32(stored.len()),
            checksum: crc(stored),
            reserved: 0,
            head_checksum: 0,
        };
        let mut head = [0; StreamPiece::SIZE];
        piece.encode(&mut head);
        let checksum = crc(&head[..StreamPiece::SIZE - 4]);
        StreamPiece { head_checksum: checksum, ..piece }.encode(&mut head);
        self.put(&head)?;
        self.put(stored)?;
        self.position += length;
        self.pieces += 1;
        Ok(())
    }

    /// The next `length` bytes are as in the older snapshot.
    pub fn same(&mut self, length: u64) -> Result<()> {
        if length > 0 { self.piece(0, length, &[]) } else { Ok(()) }
    }

    /// The next `length` bytes are a hole.
    pub fn hole(&mut self, length: u64) -> Result<()> {
        if length > 0 { self.piece(1, length, &[]) } else { Ok(()) }
    }

    /// The next bytes: at least one, and no more than a piece may have.
    pub fn data(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(!bytes.is_empty() && bytes.len() <= index(PIECE_BYTES_MAX), "a piece of {} bytes", bytes.len());
        self.data += len_u64(bytes.len());
        let mut packed = std::mem::take(&mut self.packed);
        let done = match crate::packed::pack(bytes, self.compression, &mut packed) {
            Some(len) => self.piece(3, len_u64(bytes.len()), &packed[..len]),
            None => self.piece(2, len_u64(bytes.len()), bytes),
        };
        self.packed = packed;
        done
    }

    /// Ends the stream: what reads it knows from then on that it is whole.
    pub fn end(&mut self) -> Result<()> {
        let end = StreamEnd {
            magic: END_MAGIC,
            pieces: self.pieces,
            data: self.data,
            checksum: self.sum.value(),
            ..StreamEnd::default()
        };
        let mut bytes = [0; StreamEnd::SIZE];
        end.encode(&mut bytes);
        let checksum = crc(&bytes[..StreamEnd::SIZE - 4]);
        StreamEnd { head_checksum: checksum, ..end }.encode(&mut bytes);
        self.put(&bytes)?;
        self.into.flush().map_err(|error| failed("writing", &error))
    }
}
