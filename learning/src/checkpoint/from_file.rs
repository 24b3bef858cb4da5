//! A model of a known layout from a file, however its writer ordered the tensors.

use std::io::{self, Read};
use std::sync::Arc;

use super::tensor_file::{fill_from, read_full, read_header};
use super::{CheckpointError, File, check_finite, elements};
use crate::parameters::{Layout, Parameters};

/// Reads a model of a known layout from the start of a file, with one small buffer in addition to the parameters. Accepts the same bytes as
/// [`read`](super::read).
///
/// # Errors
/// Errors of the file; within, as for [`read`](super::read).
pub fn read_from(file: &mut impl Read, expected: &Arc<Layout>) -> io::Result<Result<Parameters, CheckpointError>> {
    let header = match read_header(file)? {
        Ok(header) => header,
        Err(error) => return Ok(Err(error)),
    };
    let order = match order(&header, expected) {
        Ok(order) => order,
        Err(error) => return Ok(Err(error)),
    };
    let mut parameters = Parameters::zeros(Arc::clone(expected));
    for index in order {
        let values = &mut parameters.values_mut()[expected.range(index)];
        if let Err(error) = fill_from(file, values)? {
            return Ok(Err(error));
        }
        if let Err(error) = check_finite(&expected.tensors()[index].name, values) {
            return Ok(Err(error));
        }
    }
    if read_full(file, &mut [0])? > 0 {
        return Ok(Err(CheckpointError::Malformed("bytes follow its last value".to_owned())));
    }
    Ok(Ok(parameters))
}

/// The indices of a model's tensors in the order of their data, which must be contiguous.
fn order(header: &[u8], expected: &Layout) -> Result<Vec<usize>, CheckpointError> {
    let file = File::of_header(header)?;
    file.expect_all(expected)?;
    let (mut order, mut at) = (Vec::new(), 0);
    for name in file.names() {
        let (Some(index), Some(info)) = (expected.find(&name), file.metadata.info(&name)) else {
            return Err(CheckpointError::Unexpected(name));
        };
        let end = at + 4 * elements(&expected.tensors()[index].shape);
        if info.data_offsets != (at, end) {
            return Err(CheckpointError::Malformed(format!(
                "the values of {name:?} are not where the tensor before ends"
            )));
        }
        order.push(index);
        at = end;
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{layout, model};
    use super::super::{TensorFile, read, write};
    use super::*;

    /// Checks that [`read`] and [`read_from`] agree; the latter checks the tensors before the size.
    fn both(bytes: &[u8], expected: &Arc<Layout>) -> Result<Parameters, CheckpointError> {
        let whole = read(bytes, expected);
        let streamed = read_from(&mut &bytes[..], expected).unwrap();
        match (&whole, &streamed) {
            (Ok(whole), Ok(streamed)) => assert_eq!(whole, streamed),
            (Err(CheckpointError::Malformed(_)), Err(_)) => {}
            (whole, streamed) => assert_eq!(whole.as_ref().err(), streamed.as_ref().err()),
        }
        whole
    }

    #[test]
    fn a_file_is_read_like_its_bytes() {
        let (model, bytes) = (model(), write(&model()).unwrap());
        assert_eq!(both(&bytes, model.layout()).unwrap(), model);
        for length in 0..bytes.len() {
            assert!(both(&bytes[..length], model.layout()).is_err(), "{length}");
        }
        assert!(both(&[&bytes[..], b"x"].concat(), model.layout()).is_err());
        for place in 0..bytes.len() - 24 {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[place] ^= 1 << bit;
                let _ = both(&other, model.layout());
            }
        }
        let nan = [&bytes[..bytes.len() - 4], &f32::NAN.to_le_bytes()].concat();
        assert!(matches!(both(&nan, model.layout()), Err(CheckpointError::NotFinite { .. })));
        for foreign in [&[("z.weight", &[4_u64][..])][..], &[("z.weight", &[2, 2]), ("other", &[1]), ("m", &[])]] {
            assert!(both(&bytes, &layout(foreign)).is_err());
        }
    }

    #[test]
    fn tensors_are_found_in_any_order() {
        let model = model();
        let other = layout(&[("m", &[]), ("z.weight", &[2, 2]), ("a\"\\", &[1])]);
        let values = other.tensors().iter().flat_map(|tensor| model.tensor(model.layout().find(&tensor.name).unwrap()));
        let values: Vec<f32> = values.copied().collect();
        let mut bytes = Vec::new();
        TensorFile::of_model(&other).unwrap().write(&mut bytes, &values).unwrap().unwrap();
        assert_eq!(both(&bytes, model.layout()).unwrap(), model);
    }
}
