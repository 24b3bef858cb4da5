//! Members of a ZIP archive, stored or deflated. Archives of more than 4 GiB (ZIP64) exceed the limit and are rejected.

use std::borrow::Cow;
use std::io::Read as _;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::error::NpzError;
use crate::limits::{MAX_ARRAYS, MAX_CONTENT_BYTES};

const END: &[u8] = b"PK\x05\x06";
/// Length of the record at the end, without its comment.
const END_BYTES: usize = 22;
const ENTRY: &[u8] = b"PK\x01\x02";
/// Length of an entry of the directory, without name, extra field and comment.
const ENTRY_BYTES: usize = 46;
const LOCAL: &[u8] = b"PK\x03\x04";
/// Length of the header before a member's content, without name and extra field.
const LOCAL_BYTES: usize = 30;
/// Flag of an encrypted member.
const ENCRYPTED: u16 = 1;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// A file in an archive.
pub(super) struct Member<'a> {
    pub(super) name: String,
    method: u16,
    checksum: u32,
    /// Compressed content.
    bytes: &'a [u8],
    /// Length of the content without compression.
    length: usize,
}

/// The members in the order of the directory. The sum of their lengths keeps the limit.
pub(super) fn members(file: &[u8]) -> Result<Vec<Member<'_>>, NpzError> {
    if file.len() as u64 > MAX_CONTENT_BYTES {
        return Err(NpzError::Large);
    }
    let end = end(file).ok_or(NpzError::Archive("its end is missing"))?;
    let cut = || NpzError::Archive("its directory is truncated");
    let count = usize::from(u16_at(end, 10).ok_or_else(cut)?);
    if count > MAX_ARRAYS {
        return Err(NpzError::Many(count));
    }
    let mut directory = tail(file, u32_at(end, 16).ok_or_else(cut)?).ok_or_else(cut)?;
    let (mut members, mut total) = (Vec::with_capacity(count), 0_u64);
    for _ in 0..count {
        let (member, rest) = entry(file, directory)?;
        total += member.length as u64;
        if total > MAX_CONTENT_BYTES {
            return Err(NpzError::Large);
        }
        members.push(member);
        directory = rest;
    }
    Ok(members)
}

impl<'a> Member<'a> {
    /// The content without compression, with the right length and checksum.
    pub(super) fn content(&self) -> Result<Cow<'a, [u8]>, NpzError> {
        let damaged = |detail| NpzError::Damaged { name: self.name.clone(), detail };
        let content = match self.method {
            STORED => Cow::Borrowed(self.bytes),
            DEFLATED => {
                let mut content = Vec::new();
                let read = DeflateDecoder::new(self.bytes).take(self.length as u64 + 1).read_to_end(&mut content);
                read.map_err(|_| damaged("it does not decompress"))?;
                Cow::Owned(content)
            }
            _ => return Err(damaged("its compression is neither none nor deflate")),
        };
        if content.len() != self.length {
            return Err(damaged("its length is not that of the directory"));
        }
        let mut checksum = Crc::new();
        checksum.update(&content);
        if checksum.sum() != self.checksum {
            return Err(damaged("its checksum is wrong"));
        }
        Ok(content)
    }
}

/// The record at the end of an archive, which a comment of at most 65,535 bytes follows.
fn end(file: &[u8]) -> Option<&[u8]> {
    let last = file.len().checked_sub(END_BYTES)?;
    (last.saturating_sub(usize::from(u16::MAX))..=last)
        .rev()
        .map(|start| &file[start..])
        .find(|record| record.starts_with(END) && u16_at(record, 20).map(usize::from) == Some(record.len() - END_BYTES))
}

/// The first member of a directory, and the rest of the directory.
fn entry<'a>(file: &'a [u8], directory: &'a [u8]) -> Result<(Member<'a>, &'a [u8]), NpzError> {
    let cut = || NpzError::Archive("its directory is truncated");
    let fields = directory.get(..ENTRY_BYTES).filter(|fields| fields.starts_with(ENTRY)).ok_or_else(cut)?;
    let short = |at| u16_at(fields, at).ok_or_else(cut);
    let long = |at| u32_at(fields, at).ok_or_else(cut);
    let [name, extra, comment] = [short(28)?, short(30)?, short(32)?].map(usize::from);
    let rest = directory.get(ENTRY_BYTES + name + extra + comment..).ok_or_else(cut)?;
    let name = String::from_utf8_lossy(&directory[ENTRY_BYTES..][..name]).into_owned();
    let (compressed, length) = (long(20)?, long(24)?);
    if u64::from(compressed.max(length)) > MAX_CONTENT_BYTES {
        return Err(NpzError::Large);
    }
    let damaged = |detail| NpzError::Damaged { name: name.clone(), detail };
    if short(8)? & ENCRYPTED != 0 {
        return Err(damaged("it is encrypted"));
    }
    let bytes = content(file, long(42)?, compressed).ok_or_else(|| damaged("it is truncated"))?;
    let (method, checksum, length) = (short(10)?, long(16)?, length as usize);
    Ok((Member { name, method, checksum, bytes, length }, rest))
}

/// The compressed content of the member whose header is at `offset`. The directory alone states its length: NumPy
/// leaves the length in the header open.
fn content(file: &[u8], offset: u32, length: u32) -> Option<&[u8]> {
    let header = tail(file, offset).filter(|header| header.starts_with(LOCAL))?;
    let (name, extra) = (u16_at(header, 26)?, u16_at(header, 28)?);
    header.get(LOCAL_BYTES + usize::from(name) + usize::from(extra)..)?.get(..length as usize)
}

fn tail(bytes: &[u8], offset: u32) -> Option<&[u8]> {
    bytes.get(usize::try_from(offset).ok()?..)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_le_bytes(*word))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}
