//! Reading a published model from a file, piece by piece.

use std::io::{self, Read};
use std::sync::Arc;

use safetensors::tensor::Metadata;

use super::{CheckpointError, File, MAX_HEADER_BYTES, check_finite, items, layout_of, padded_header};
use crate::parameters::{Layout, Parameters};

/// Bytes of a file's data that are read at once.
const PIECE: usize = 64 << 10;

/// Reads a published model from a file, with one small buffer in memory beside the parameters. Accepts what
/// [`read_published`](super::read_published) accepts.
///
/// # Errors
/// Of the file; within, as for [`read_published`](super::read_published).
pub fn read_published_from(
    file: &mut impl Read,
    expected: &Arc<Layout>,
) -> io::Result<Result<Parameters, CheckpointError>> {
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
    let mut parameters = Parameters::zeros(Arc::clone(expected));
    match padded_header(None, &items(&parameters)) {
        Ok(written) if written == header => {}
        Ok(_) => return Ok(Err(why_not(&header, expected))),
        Err(error) => return Ok(Err(error)),
    }
    let mut piece = vec![0; PIECE];
    for values in parameters.values_mut().chunks_mut(PIECE / 4) {
        let bytes = &mut piece[..4 * values.len()];
        if read_full(file, bytes)? < bytes.len() {
            return Ok(Err(CheckpointError::Malformed("it ends before its last value".to_owned())));
        }
        for (value, &bytes) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *value = f32::from_le_bytes(bytes);
        }
    }
    if read_full(file, &mut piece[..1])? > 0 {
        return Ok(Err(CheckpointError::Malformed("bytes follow its last value".to_owned())));
    }
    let checked = items(&parameters).iter().try_for_each(|item| check_finite(&item.name, item.values));
    Ok(checked.map(|()| parameters))
}

/// Why a header is not the one that a published model of this layout has.
fn why_not(header: &[u8], expected: &Arc<Layout>) -> CheckpointError {
    let metadata: Metadata = match serde_json::from_slice(header) {
        Ok(metadata) => metadata,
        Err(error) => return CheckpointError::Malformed(error.to_string()),
    };
    let found = match layout_of(&metadata) {
        Ok(found) => found,
        Err(error) => return error,
    };
    if let Some(extra) = found.tensors().iter().find(|tensor| expected.find(&tensor.name).is_none()) {
        return CheckpointError::Unexpected(extra.name.clone());
    }
    let file = File { metadata, data: &[] };
    let other = expected.tensors().iter().find_map(|tensor| file.expect(&tensor.name, &tensor.shape).err());
    other.unwrap_or(CheckpointError::OtherForm)
}

/// Fills `room` as far as the file reaches; returns how far.
fn read_full(file: &mut impl Read, room: &mut [u8]) -> io::Result<usize> {
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
    use super::super::tests::{layout, model};
    use super::super::{read_published, write};
    use super::*;

    #[test]
    fn a_file_is_read_like_its_bytes() {
        let large = layout(&[("w", &[70_000]), ("b", &[3])]);
        let values = (0..=u16::MAX).cycle().take(70_003).map(|n| f32::from(n) - 0.5).collect();
        for model in [model(), Parameters::new(large, values).unwrap()] {
            let bytes = write(&model).unwrap();
            let read = read_published_from(&mut &bytes[..], model.layout()).unwrap().unwrap();
            assert_eq!(read.values(), model.values());
            let at = |index: usize, byte: u8| {
                let mut other = bytes.clone();
                other[index] ^= byte;
                other
            };
            let nan = [&bytes[..bytes.len() - 4], &f32::NAN.to_le_bytes()].concat();
            let (longer, huge) = ([&bytes[..], b"x"].concat(), at(6, 1));
            let others = [
                at(9, 1),
                at(20, 32),
                bytes[..bytes.len() - 1].to_vec(),
                bytes[..9].to_vec(),
                Vec::new(),
                longer,
                huge,
                nan,
            ];
            for other in others {
                let whole = read_published(&other, model.layout()).unwrap_err();
                let streamed = read_published_from(&mut &other[..], model.layout()).unwrap().unwrap_err();
                assert_eq!(std::mem::discriminant(&whole), std::mem::discriminant(&streamed), "{whole} / {streamed}");
            }
            let foreign = layout(&[("z.weight", &[2, 3]), ("other", &[1])]);
            let whole = read_published(&bytes, &foreign).unwrap_err();
            assert_eq!(read_published_from(&mut &bytes[..], &foreign).unwrap().unwrap_err(), whole);
        }
    }
}
