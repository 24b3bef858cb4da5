//! The canonical file of tensors with given names and shapes, read and written in slices of its values.

use std::io::{self, Read, Seek, SeekFrom, Write};

use safetensors::tensor::Metadata;

use super::{CheckpointError, File, MAX_HEADER_BYTES, elements, padded_header};
use crate::parameters::{Layout, first_not_finite};

/// Bytes of values converted at once.
const PIECE: usize = 64 << 10;

/// A safetensors file in its canonical form, known except for the values: equal tensors have one header. Values are counted over all
/// tensors, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorFile {
    /// The header, with its length in front.
    header: Vec<u8>,
    tensors: Vec<(String, Vec<u64>)>,
    values: usize,
}

impl TensorFile {
    /// The file of a published model.
    ///
    /// # Errors
    /// [`CheckpointError::Malformed`] for a layout beyond the limits of safetensors.
    pub fn of_model(layout: &Layout) -> Result<Self, CheckpointError> {
        Self::new(None, layout.tensors().iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect())
    }

    pub(crate) fn new(note: Option<(&str, &str)>, tensors: Vec<(String, Vec<u64>)>) -> Result<Self, CheckpointError> {
        let described: Vec<_> = tensors.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())).collect();
        let content = padded_header(note, &described)?;
        let mut header = (content.len() as u64).to_le_bytes().to_vec();
        header.extend_from_slice(&content);
        let values = tensors.iter().map(|(_, shape)| elements(shape)).sum();
        Ok(Self { header, tensors, values })
    }

    /// The start of the file; the values follow, as little-endian `f32`.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    pub(crate) fn tensors(&self) -> &[(String, Vec<u64>)] {
        &self.tensors
    }

    /// Number of values of all tensors together.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    /// Size of the whole file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.place_of(self.values)
    }

    /// Where a value lies in the file, in bytes.
    #[must_use]
    pub fn place_of(&self, value: usize) -> u64 {
        self.header.len() as u64 + 4 * value as u64
    }

    /// Reads the header; the file must be positioned at it.
    ///
    /// # Errors
    /// Errors of the file; within, the difference from the canonical file of these tensors.
    pub fn read_header(&self, file: &mut (impl Read + ?Sized)) -> io::Result<Result<(), CheckpointError>> {
        Ok(match read_header(file)? {
            Ok(header) if header == self.header[8..] => Ok(()),
            Ok(header) => Err(self.why_not(&header)),
            Err(error) => Err(error),
        })
    }

    /// Checks the size of a file, and reads the header from its start.
    ///
    /// # Errors
    /// As for [`read_header`](Self::read_header).
    pub fn open(&self, file: &mut (impl Read + Seek + ?Sized)) -> io::Result<Result<(), CheckpointError>> {
        file.seek(SeekFrom::Start(0))?;
        if let Err(error) = self.read_header(file)? {
            return Ok(Err(error));
        }
        self.check_size(file)
    }

    pub(crate) fn check_size(&self, file: &mut (impl Seek + ?Sized)) -> io::Result<Result<(), CheckpointError>> {
        let (expected, got) = (self.bytes(), file.seek(SeekFrom::End(0))?);
        let malformed = || CheckpointError::Malformed(format!("it has {got} bytes instead of {expected}"));
        Ok(if got == expected { Ok(()) } else { Err(malformed()) })
    }

    /// Reads values from the `start`-th on; the file must be positioned there.
    ///
    /// # Errors
    /// Errors of the file; within, [`CheckpointError::Malformed`] at its end and [`CheckpointError::NotFinite`].
    pub fn read_values(
        &self,
        file: &mut (impl Read + ?Sized),
        start: usize,
        values: &mut [f32],
    ) -> io::Result<Result<(), CheckpointError>> {
        Ok(match fill_from(file, values)? {
            Ok(()) => self.check_finite(start, values),
            Err(error) => Err(error),
        })
    }

    /// Writes values from the `start`-th on, after the preceding ones.
    ///
    /// # Errors
    /// Errors of the file; within, [`CheckpointError::NotFinite`] before writing: every reader would reject the file.
    pub fn write_values(
        &self,
        file: &mut (impl Write + ?Sized),
        start: usize,
        values: &[f32],
    ) -> io::Result<Result<(), CheckpointError>> {
        if let Err(error) = self.check_finite(start, values) {
            return Ok(Err(error));
        }
        let mut piece = Vec::with_capacity(PIECE.min(4 * values.len()));
        for values in values.chunks(PIECE / 4) {
            piece.clear();
            piece.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            file.write_all(&piece)?;
        }
        Ok(Ok(()))
    }

    /// Writes the whole file of a model, with one small buffer in memory.
    ///
    /// # Errors
    /// As for [`write_values`](Self::write_values).
    pub fn write(&self, file: &mut (impl Write + ?Sized), values: &[f32]) -> io::Result<Result<(), CheckpointError>> {
        if let Err(error) = self.check_finite(0, values) {
            return Ok(Err(error));
        }
        file.write_all(&self.header)?;
        self.write_values(file, 0, values)
    }

    /// The whole file, of values in so many pieces.
    pub(crate) fn with_values<'a>(
        &self,
        values: impl IntoIterator<Item = &'a [f32]>,
    ) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.bytes()).unwrap_or_default());
        bytes.extend_from_slice(&self.header);
        let mut start = 0;
        for values in values {
            self.check_finite(start, values)?;
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            start += values.len();
        }
        Ok(bytes)
    }

    fn check_finite(&self, start: usize, values: &[f32]) -> Result<(), CheckpointError> {
        let Some(found) = first_not_finite(values) else { return Ok(()) };
        let mut index = start + found;
        for (name, shape) in &self.tensors {
            match index.checked_sub(elements(shape)) {
                Some(behind) => index = behind,
                None => return Err(CheckpointError::NotFinite { tensor: name.clone(), index }),
            }
        }
        Err(CheckpointError::Malformed("there are more values than its tensors have".to_owned()))
    }

    /// Why a header is not the one of these tensors.
    fn why_not(&self, header: &[u8]) -> CheckpointError {
        let file = match File::of_header(header) {
            Ok(file) => file,
            Err(error) => return error,
        };
        let is_ours = |name: &String| self.tensors.iter().any(|(ours, _)| ours == name);
        if let Err(error) = file.layout() {
            return error;
        }
        if let Some(extra) = file.names().into_iter().find(|name| !is_ours(name)) {
            return CheckpointError::Unexpected(extra);
        }
        let other = self.tensors.iter().find_map(|(name, shape)| file.expect(name, shape).err());
        other.unwrap_or(CheckpointError::OtherForm)
    }
}

/// Reads the header of a safetensors file, after checking its length.
pub(crate) fn read_header(file: &mut (impl Read + ?Sized)) -> io::Result<Result<Vec<u8>, CheckpointError>> {
    let mut length = [0; 8];
    if read_full(file, &mut length)? < length.len() {
        return Ok(Err(CheckpointError::Malformed("it has no header".to_owned())));
    }
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES {
        return Ok(Err(CheckpointError::HeaderTooLong(length)));
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header)?;
    Ok(Ok(header))
}

/// Reads values from where the file stands.
pub(super) fn fill_from(
    file: &mut (impl Read + ?Sized),
    values: &mut [f32],
) -> io::Result<Result<(), CheckpointError>> {
    let mut piece = vec![0; PIECE.min(4 * values.len())];
    for values in values.chunks_mut(PIECE / 4) {
        let bytes = &mut piece[..4 * values.len()];
        if read_full(file, bytes)? < bytes.len() {
            return Ok(Err(CheckpointError::Malformed("it ends before its last value".to_owned())));
        }
        for (value, &bytes) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *value = f32::from_le_bytes(bytes);
        }
    }
    Ok(Ok(()))
}

impl File<'_> {
    /// A file consisting of a header only.
    pub(crate) fn of_header(header: &[u8]) -> Result<Self, CheckpointError> {
        let metadata: Metadata =
            serde_json::from_slice(header).map_err(|error| CheckpointError::Malformed(error.to_string()))?;
        Ok(Self { metadata, data: &[] })
    }
}

/// Fills `room` as far as the file reaches; returns how far.
pub(super) fn read_full(file: &mut (impl Read + ?Sized), room: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < room.len() {
        match file.read(&mut room[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::tests::model;
    use super::super::{read_published, write};
    use super::*;

    #[test]
    fn slices_of_any_length_are_the_file() {
        let (model, bytes) = (model(), write(&model()).unwrap());
        let file = TensorFile::of_model(model.layout()).unwrap();
        assert_eq!((file.bytes(), file.values()), (bytes.len() as u64, model.values().len()));
        for length in 1..=file.values() {
            let (mut written, mut read) = (file.header().to_vec(), Vec::new());
            for (start, values) in (0..).step_by(length).zip(model.values().chunks(length)) {
                file.write_values(&mut written, start, values).unwrap().unwrap();
            }
            assert_eq!(written, bytes, "{length}");
            let mut stored = Cursor::new(&bytes);
            file.open(&mut stored).unwrap().unwrap();
            for start in (0..file.values()).step_by(length).rev() {
                let mut values = vec![0.0; length.min(file.values() - start)];
                stored.seek(SeekFrom::Start(file.place_of(start))).unwrap();
                file.read_values(&mut stored, start, &mut values).unwrap().unwrap();
                read.splice(0..0, values);
            }
            assert_eq!(read, model.values(), "{length}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_of_the_tensor() {
        let (model, bytes) = (model(), write(&model()).unwrap());
        let file = TensorFile::of_model(model.layout()).unwrap();
        let not_finite = CheckpointError::NotFinite { tensor: "a\"\\".into(), index: 0 };
        let refused = file.write_values(&mut Vec::new(), 3, &[1.0, f32::NAN, 2.0]).unwrap();
        assert_eq!(refused, Err(not_finite.clone()));
        let stored = [1.0, f32::INFINITY].map(f32::to_le_bytes).concat();
        assert_eq!(file.read_values(&mut &stored[..], 3, &mut [0.0; 2]).unwrap(), Err(not_finite));
        let short = file.read_values(&mut &stored[..7], 3, &mut [0.0; 2]).unwrap();
        assert!(matches!(short, Err(CheckpointError::Malformed(_))), "{short:?}");
        for other in [&bytes[..bytes.len() - 1], &[&bytes[..], b"x"].concat(), &bytes[..12], &[]] {
            assert!(file.open(&mut Cursor::new(other)).unwrap().is_err());
        }
        let mut other = bytes;
        other[20] ^= 32;
        let whole = read_published(&other, model.layout()).unwrap_err();
        let opened = file.open(&mut Cursor::new(&other)).unwrap().unwrap_err();
        assert_eq!(std::mem::discriminant(&whole), std::mem::discriminant(&opened), "{whole} / {opened}");
    }
}
