//! A model from another program's safetensors file, rewritten as the file of a published model.

use std::io::{self, Read, Seek, SeekFrom, Write};

use safetensors::Dtype;
use safetensors::tensor::TensorInfo;

use super::tensor_file::{read_full, read_header};
use super::{CheckpointError, File, TensorFile, elements, shape_of};
use crate::parameters::{Layout, TensorSpec};

/// Number of values converted at once.
const PIECE: usize = 16 << 10;

/// The expected tensors of a given file, and the tensors to write.
#[derive(Clone, Copy, Debug)]
pub struct GivenModel<'a> {
    /// All tensors of the model. The file may hold these and no other floating-point tensors.
    pub whole: &'a Layout,
    /// The tensors of the published file, in order. The file must hold those of the model; the others become zero.
    pub published: &'a Layout,
    /// Prefix of the names of skipped tensors: a solver's additions to a published model.
    pub skipped: &'a str,
}

/// Reasons a given file is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GivenError {
    /// The given file cannot be read, or the published file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The given file is not safetensors, or does not hold the model.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A tensor of the model has an element type without a conversion to 32 bits.
    #[error("tensor {tensor:?} holds {dtype}; F32, F16 and BF16 are possible")]
    Dtype {
        /// Name of the tensor.
        tensor: String,
        /// Its element type, as safetensors names it.
        dtype: String,
    },
}

/// The floating-point tensors of a given file, in the order of their data: the trainable ones.
///
/// # Errors
/// [`GivenError`]: the file is not safetensors, or its tensors do not form a model.
pub fn given_layout(given: &mut impl Read) -> Result<Layout, GivenError> {
    let header = read_header(given)??;
    let file = File::of_header(&header)?;
    let mut tensors = Vec::new();
    for name in file.names() {
        let Some(info) = file.metadata.info(&name).filter(|info| !is_integer(info.dtype)) else { continue };
        width(&name, info)?;
        tensors.push(TensorSpec { shape: shape_of(info), name });
    }
    Ok(Layout::new(tensors).map_err(CheckpointError::from)?)
}

impl GivenModel<'_> {
    /// Writes the published file with the values of a given file, read from its start.
    ///
    /// `F16` and `BF16` become `F32`. Skips integer tensors outside the model, such as the batch counter of a normalization layer of
    /// PyTorch. Memory: a header and a buffer of 128 KiB.
    ///
    /// # Errors
    /// [`GivenError`]. Discard the output written so far.
    pub fn publish(&self, given: &mut (impl Read + Seek), published: &mut impl Write) -> Result<(), GivenError> {
        let size = given.seek(SeekFrom::End(0))?;
        given.seek(SeekFrom::Start(0))?;
        let header = read_header(given)??;
        let file = File::of_header(&header)?;
        let data = 8 + header.len() as u64;
        let expected = data + file.metadata.data_len() as u64;
        if size != expected {
            return Err(CheckpointError::Malformed(format!("it has {size} bytes instead of {expected}")).into());
        }
        self.check_names(&file)?;
        let to = TensorFile::of_model(self.published)?;
        published.write_all(to.header())?;
        let mut start = 0;
        for tensor in self.published.tensors() {
            let count = elements(&tensor.shape);
            let from = match self.whole.find(&tensor.name) {
                Some(_) => Some(place(&file, &tensor.name, &tensor.shape)?),
                None => None,
            };
            if let Some((dtype, offset)) = from {
                given.seek(SeekFrom::Start(data + offset))?;
                copy(dtype, count, given, |at, values| to.write_values(published, start + at, values))?;
            } else {
                copy(Width::Zero, count, given, |at, values| to.write_values(published, start + at, values))?;
            }
            start += count;
        }
        Ok(())
    }

    /// Rejects floating-point tensors outside the model, except skipped ones.
    fn check_names(&self, file: &File<'_>) -> Result<(), GivenError> {
        for name in file.names() {
            let is_skipped =
                name.starts_with(self.skipped) || file.metadata.info(&name).is_some_and(|info| is_integer(info.dtype));
            if self.whole.find(&name).is_none() && !is_skipped {
                return Err(CheckpointError::Unexpected(name).into());
            }
        }
        Ok(())
    }
}

/// How the values of a tensor are stored.
#[derive(Clone, Copy)]
enum Width {
    F32,
    F16,
    Bf16,
    /// Not at all.
    Zero,
}

impl Width {
    fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::F16 => Some(Self::F16),
            Dtype::BF16 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// Bytes of a value.
    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Zero => 0,
        }
    }

    fn read(self, bytes: &[u8], values: &mut [f32]) {
        match self {
            Self::F32 => {
                let bytes = bytes.as_chunks::<4>().0;
                values.iter_mut().zip(bytes).for_each(|(value, &bytes)| *value = f32::from_le_bytes(bytes));
            }
            Self::F16 => {
                let bytes = bytes.as_chunks::<2>().0;
                values.iter_mut().zip(bytes).for_each(|(value, &bytes)| *value = f16_to_f32(u16::from_le_bytes(bytes)));
            }
            Self::Bf16 => {
                let bytes = bytes.as_chunks::<2>().0;
                values
                    .iter_mut()
                    .zip(bytes)
                    .for_each(|(value, &bytes)| *value = bf16_to_f32(u16::from_le_bytes(bytes)));
            }
            Self::Zero => values.fill(0.0),
        }
    }
}

/// The value of an IEEE 754 number of 16 bits. The crate `half` would be three more crates in each app.
fn f16_to_f32(bits: u16) -> f32 {
    let (exponent, fraction) = (u32::from(bits >> 10) & 31, u32::from(bits & 1023));
    let size = match exponent {
        // Multiples of 2^-24.
        0 => (fraction as f32 / 16_777_216.0).to_bits(),
        31 => 0x7f80_0000 | (fraction << 13),
        _ => ((exponent + 112) << 23) | (fraction << 13),
    };
    f32::from_bits((u32::from(bits & 0x8000) << 16) | size)
}

/// The value of a bfloat16: the upper half of an `f32`.
fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn is_integer(dtype: Dtype) -> bool {
    matches!(
        dtype,
        Dtype::BOOL
            | Dtype::I8
            | Dtype::U8
            | Dtype::I16
            | Dtype::U16
            | Dtype::I32
            | Dtype::U32
            | Dtype::I64
            | Dtype::U64
    )
}

/// Where the values of a tensor are, within the data of the file.
fn place(file: &File<'_>, name: &str, shape: &[u64]) -> Result<(Width, u64), GivenError> {
    let info = file.metadata.info(name).ok_or_else(|| CheckpointError::Missing(name.to_owned()))?;
    let got = shape_of(info);
    if got != shape {
        let (tensor, expected) = (name.to_owned(), shape.to_vec());
        return Err(CheckpointError::Shape { tensor, expected, got }.into());
    }
    Ok((width(name, info)?, info.data_offsets.0 as u64))
}

fn width(name: &str, info: &TensorInfo) -> Result<Width, GivenError> {
    Width::of(info.dtype).ok_or_else(|| GivenError::Dtype { tensor: name.to_owned(), dtype: info.dtype.to_string() })
}

/// Reads `count` values from where the file stands, and hands them to `write` piece by piece, with the position of each piece.
fn copy(
    width: Width,
    count: usize,
    given: &mut impl Read,
    mut write: impl FnMut(usize, &[f32]) -> io::Result<Result<(), CheckpointError>>,
) -> Result<(), GivenError> {
    let room = PIECE.min(count);
    let (mut bytes, mut values) = (vec![0; room * width.bytes()], vec![0.0; room]);
    let mut at = 0;
    while at < count {
        let values = &mut values[..room.min(count - at)];
        let bytes = &mut bytes[..values.len() * width.bytes()];
        if read_full(given, bytes)? < bytes.len() {
            return Err(CheckpointError::Malformed("it ends before its last value".to_owned()).into());
        }
        width.read(bytes, values);
        write(at, values)??;
        at += values.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use half::{bf16, f16};
    use safetensors::tensor::TensorView;

    use super::super::tests::layout;
    use super::super::{read_published, write};
    use super::*;
    use crate::parameters::Parameters;

    fn file(tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Vec<u8> {
        let views = tensors.iter().map(|(name, dtype, shape, data)| {
            ((*name).to_owned(), TensorView::new(*dtype, shape.to_vec(), data).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn publish(given: &[u8], whole: &Layout, published: &Layout) -> Result<Vec<u8>, GivenError> {
        let mut to = Vec::new();
        let model = GivenModel { whole, published, skipped: "control/" };
        model.publish(&mut Cursor::new(given), &mut to).map(|()| to)
    }

    #[test]
    fn a_given_file_is_published_in_layout_order_and_widened() {
        let layout = layout(&[("w", &[2, 2]), ("b", &[1]), ("h", &[2])]);
        let halves = [f16::from_f32(0.5), f16::from_f32(-3.25)].map(f16::to_le_bytes).concat();
        let given = file(&[
            ("b", Dtype::BF16, &[1], bf16::from_f32(1.5).to_le_bytes().to_vec()),
            ("bn.num_batches_tracked", Dtype::I64, &[], 7_i64.to_le_bytes().to_vec()),
            ("h", Dtype::F16, &[2], halves),
            ("w", Dtype::F32, &[2, 2], f32s(&[1.0, 2.0, 3.0, 4.0])),
        ]);
        let published = publish(&given, &layout, &layout).unwrap();
        let read = read_published(&published, &layout).unwrap();
        assert_eq!(read.values(), [1.0, 2.0, 3.0, 4.0, 1.5, 0.5, -3.25]);
        assert_eq!(published, write(&read).unwrap());
        // A published file is its own copy.
        assert_eq!(publish(&published, &layout, &layout).unwrap(), published);
    }

    #[test]
    fn every_number_of_16_bits_has_its_value() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
            let (ours, theirs) = (bf16_to_f32(bits), bf16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn tensors_of_a_given_file_are_its_floats() {
        let given = file(&[
            ("n", Dtype::I64, &[], 7_i64.to_le_bytes().to_vec()),
            ("b", Dtype::BF16, &[1], vec![0; 2]),
            ("w", Dtype::F32, &[2, 1], vec![0; 8]),
        ]);
        let found = given_layout(&mut &given[..]).unwrap();
        assert_eq!(found.tensors(), layout(&[("w", &[2, 1]), ("b", &[1])]).tensors());
    }

    #[test]
    fn local_tensors_are_left_out_and_control_variates_begin_at_zero() {
        let (whole, published) = (layout(&[("a", &[1]), ("head", &[1])]), layout(&[("a", &[1]), ("control/a", &[1])]));
        let given = file(&[("a", Dtype::F32, &[1], f32s(&[2.0])), ("head", Dtype::F32, &[1], f32s(&[9.0]))]);
        let made = publish(&given, &whole, &published).unwrap();
        assert_eq!(read_published(&made, &published).unwrap().values(), [2.0, 0.0]);
        // The control variate of an earlier task does not count either.
        let given = file(&[("a", Dtype::F32, &[1], f32s(&[2.0])), ("control/a", Dtype::F32, &[1], f32s(&[9.0]))]);
        let made = publish(&given, &whole, &published).unwrap();
        assert_eq!(read_published(&made, &published).unwrap().values(), [2.0, 0.0]);
        // A task without control variates continues from one with some.
        let plain = layout(&[("a", &[1])]);
        let made = publish(&given, &plain, &plain).unwrap();
        assert_eq!(read_published(&made, &plain).unwrap().values(), [2.0]);
    }

    #[test]
    fn a_tensor_longer_than_a_buffer_is_whole() {
        let count = PIECE * 2 + 3;
        let layout = layout(&[("w", &[count as u64])]);
        let values: Vec<f32> = (0..count).map(|at| at as f32).collect();
        let made = publish(&file(&[("w", Dtype::F32, &[count], f32s(&values))]), &layout, &layout).unwrap();
        assert_eq!(made, write(&Parameters::new(layout, values).unwrap()).unwrap());
    }

    #[test]
    fn a_file_of_another_model_is_rejected_with_the_reason() {
        let model = layout(&[("w", &[2])]);
        let refused = |tensors: &[(&str, Dtype, &[usize], Vec<u8>)]| {
            publish(&file(tensors), &model, &model).unwrap_err().to_string()
        };
        let good = || ("w", Dtype::F32, &[2_usize][..], f32s(&[1.0, 2.0]));
        assert_eq!(refused(&[]), r#"tensor "w" is missing"#);
        assert_eq!(
            refused(&[good(), ("x", Dtype::F32, &[1], f32s(&[1.0]))]),
            r#"tensor "x" does not belong to the model"#
        );
        assert_eq!(
            refused(&[("w", Dtype::F32, &[1, 2], f32s(&[1.0, 2.0]))]),
            r#"tensor "w" has shape [1, 2] where the model has [2]"#
        );
        assert_eq!(
            refused(&[("w", Dtype::F64, &[2], vec![0; 16])]),
            r#"tensor "w" holds F64; F32, F16 and BF16 are possible"#
        );
        let nan = refused(&[("w", Dtype::F32, &[2], f32s(&[1.0, f32::NAN]))]);
        assert_eq!(nan, r#"tensor "w" has a NaN or infinity at position 1"#);
    }

    #[test]
    fn a_file_that_is_cut_or_changed_is_rejected_or_read() {
        let model = layout(&[("w", &[2])]);
        let bytes = file(&[("w", Dtype::F32, &[2], f32s(&[1.0, 2.0]))]);
        for length in 0..bytes.len() {
            assert!(publish(&bytes[..length], &model, &model).is_err(), "{length}");
        }
        assert!(publish(&[&bytes[..], b"x"].concat(), &model, &model).is_err());
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[place] ^= 1 << bit;
                if let Ok(made) = publish(&other, &model, &model) {
                    assert!(read_published(&made, &model).is_ok(), "{place}");
                }
            }
        }
    }
}
