//! Published models: written and accepted in their canonical form only.

use std::io::{self, Read};
use std::sync::Arc;

use super::tensor_file::read_full;
use super::{CheckpointError, TensorFile, read};
use crate::parameters::{Layout, Parameters};

/// Writes parameters as safetensors; equal layouts and values give equal bytes.
///
/// # Errors
/// [`CheckpointError::NotFinite`]: every reader would reject the model.
pub fn write(parameters: &Parameters) -> Result<Vec<u8>, CheckpointError> {
    TensorFile::of_model(parameters.layout())?.with_values([parameters.values()])
}

/// Reads a published model. Accepts only the exact output of [`write()`], so each model has one digest.
///
/// # Errors
/// As for [`read`], and [`CheckpointError::OtherForm`].
pub fn read_published(bytes: &[u8], expected: &Arc<Layout>) -> Result<Parameters, CheckpointError> {
    let parameters = read(bytes, expected)?;
    // With this header the data are the values in layout order, in which they were read.
    let is_as_written = bytes.starts_with(TensorFile::of_model(expected)?.header());
    if is_as_written { Ok(parameters) } else { Err(CheckpointError::OtherForm) }
}

/// Reads a published model from a file, with one small buffer in addition to the parameters. Accepts the same bytes as
/// [`read_published`](super::read_published).
///
/// # Errors
/// Errors of the file; within, as for [`read_published`](super::read_published).
pub fn read_published_from(
    file: &mut impl Read,
    expected: &Arc<Layout>,
) -> io::Result<Result<Parameters, CheckpointError>> {
    let known = match TensorFile::of_model(expected) {
        Ok(known) => known,
        Err(error) => return Ok(Err(error)),
    };
    if let Err(error) = known.read_header(file)? {
        return Ok(Err(error));
    }
    let mut parameters = Parameters::zeros(Arc::clone(expected));
    if let Err(error) = known.read_values(file, 0, parameters.values_mut())? {
        return Ok(Err(error));
    }
    if read_full(file, &mut [0])? > 0 {
        return Ok(Err(CheckpointError::Malformed("bytes follow its last value".to_owned())));
    }
    Ok(Ok(parameters))
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
