//! Model parameters as safetensors bytes, `F32` only, so that other tools can read a published model.
//!
//! A model version is identified by its digest, so equal parameters always give equal bytes: tensors in layout order,
//! no metadata. The reader checks the header against the expected layout before it allocates anything of the claimed
//! size.

use std::collections::HashMap;
use std::sync::Arc;

use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::parameters::{Layout, LayoutError, Parameters, TensorSpec, first_not_finite};

mod from_file;
mod given;
mod published;
mod tensor_file;

pub use from_file::read_from;
pub use given::{GivenError, GivenModel, given_layout};
pub use published::{read_published, read_published_from, write};
pub use tensor_file::TensorFile;
pub(crate) use tensor_file::read_header;

/// Longest header the reader accepts, in bytes: [`MAX_TENSORS`](crate::parameters::MAX_TENSORS) of the longest names
/// fit.
pub const MAX_HEADER_BYTES: u64 = 4 << 20;

/// Reasons bytes are rejected as the expected model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Not safetensors, truncated, or followed by extra bytes.
    #[error("not a whole safetensors file: {0}")]
    Malformed(String),
    /// A header above [`MAX_HEADER_BYTES`].
    #[error("the safetensors header claims {0} bytes; at most {MAX_HEADER_BYTES} are read")]
    HeaderTooLong(u64),
    /// A tensor has another element type than `F32`.
    #[error("tensor {tensor:?} holds {dtype}; only F32 is possible")]
    Dtype { tensor: String, dtype: String },
    /// The tensors do not form a valid layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The file lacks a tensor of the expected model.
    #[error("tensor {0:?} is missing")]
    Missing(String),
    /// The file has a tensor that the expected model lacks.
    #[error("tensor {0:?} does not belong to the model")]
    Unexpected(String),
    /// A tensor has another shape.
    #[error("tensor {tensor:?} has shape {got:?} where the model has {expected:?}")]
    Shape { tensor: String, expected: Vec<u64>, got: Vec<u64> },
    /// The values are right, but [`write()`] would encode them as other bytes.
    #[error("the file holds the model, but not in the canonical form of a published model")]
    OtherForm,
    /// A tensor holds a NaN or an infinity.
    #[error("tensor {tensor:?} has a NaN or infinity at position {index}")]
    NotFinite {
        tensor: String,
        /// Position within the tensor, row-major.
        index: usize,
    },
}

/// Reads the names and shapes of the tensors, in the order of their data, without reading values.
///
/// # Errors
/// Any [`CheckpointError`] except those that concern an expected model.
pub fn read_layout(bytes: &[u8]) -> Result<Layout, CheckpointError> {
    File::parse(bytes)?.layout()
}

/// Reads a model of a known layout. The file may hold the tensors in any order but must hold exactly these.
///
/// # Errors
/// Any [`CheckpointError`].
pub fn read(bytes: &[u8], expected: &Arc<Layout>) -> Result<Parameters, CheckpointError> {
    let file = File::parse(bytes)?;
    file.expect_all(expected)?;
    let mut parameters = Parameters::zeros(Arc::clone(expected));
    for (index, tensor) in expected.tensors().iter().enumerate() {
        file.fill(&tensor.name, &mut parameters.values_mut()[expected.range(index)])?;
    }
    Ok(parameters)
}

/// The header of a file of these tensors, each a name and a shape. `note` is its only metadata: the order of several entries would
/// not be fixed.
fn padded_header(note: Option<(&str, &str)>, tensors: &[(&str, &[u64])]) -> Result<Vec<u8>, CheckpointError> {
    let malformed = |error: &dyn std::fmt::Display| CheckpointError::Malformed(error.to_string());
    let mut start = 0;
    let mut describe = |&(name, shape): &(&str, &[u64])| -> Result<_, CheckpointError> {
        let end = start + 4 * elements(shape);
        let shape = shape.iter().map(|&n| usize::try_from(n)).collect::<Result<_, _>>();
        let shape = shape.map_err(|error| malformed(&error))?;
        let info = TensorInfo { dtype: Dtype::F32, shape, data_offsets: (start, end) };
        start = end;
        Ok((name.to_owned(), info))
    };
    let tensors = tensors.iter().map(&mut describe).collect::<Result<_, _>>()?;
    let note = note.map(|(key, value)| HashMap::from([(key.to_owned(), value.to_owned())]));
    let metadata = Metadata::new(note, tensors).map_err(|error| malformed(&error))?;
    let mut header = serde_json::to_vec(&metadata).map_err(|error| malformed(&error))?;
    // The format requires data at a multiple of 8.
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

/// Number of values of a tensor of this shape, checked by a [`Layout`].
fn elements(shape: &[u64]) -> usize {
    shape.iter().fold(1, |product, &n| product * usize::try_from(n).unwrap_or(usize::MAX))
}

/// A file with a checked header: offsets lie within the data and match the shapes.
pub(crate) struct File<'a> {
    metadata: Metadata,
    data: &'a [u8],
}

impl<'a> File<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, CheckpointError> {
        if let Some(length) = bytes.first_chunk::<8>().map(|length| u64::from_le_bytes(*length))
            && length > MAX_HEADER_BYTES
        {
            return Err(CheckpointError::HeaderTooLong(length));
        }
        let malformed = |error: SafeTensorError| CheckpointError::Malformed(error.to_string());
        let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(malformed)?;
        Ok(Self { metadata, data: bytes.get(8 + header..).unwrap_or_default() })
    }

    /// The value of a metadata entry.
    pub(crate) fn note(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// Tensor names, in the order of their data.
    pub(crate) fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// Checks that the file has an `F32` tensor of this name and shape.
    pub(crate) fn expect(&self, name: &str, shape: &[u64]) -> Result<(), CheckpointError> {
        let info = self.metadata.info(name).ok_or_else(|| CheckpointError::Missing(name.to_owned()))?;
        check_dtype(name, info)?;
        let got = shape_of(info);
        if got != shape {
            return Err(CheckpointError::Shape { tensor: name.to_owned(), expected: shape.to_vec(), got });
        }
        Ok(())
    }

    /// Checks that the file has exactly these tensors.
    fn expect_all(&self, expected: &Layout) -> Result<(), CheckpointError> {
        let found = self.layout()?;
        if let Some(extra) = found.tensors().iter().find(|tensor| expected.find(&tensor.name).is_none()) {
            return Err(CheckpointError::Unexpected(extra.name.clone()));
        }
        expected.tensors().iter().try_for_each(|tensor| self.expect(&tensor.name, &tensor.shape))
    }

    /// The tensors, in the order of their data.
    pub(crate) fn layout(&self) -> Result<Layout, CheckpointError> {
        let mut tensors = Vec::new();
        for name in self.metadata.offset_keys() {
            let Some(info) = self.metadata.info(&name) else { continue };
            check_dtype(&name, info)?;
            let shape = shape_of(info);
            tensors.push(TensorSpec { name, shape });
        }
        Ok(Layout::new(tensors)?)
    }

    /// Reads the values of a tensor checked by [`Self::expect`].
    pub(crate) fn fill(&self, name: &str, values: &mut [f32]) -> Result<(), CheckpointError> {
        let info = self.metadata.info(name).ok_or_else(|| CheckpointError::Missing(name.to_owned()))?;
        let bytes = self.data.get(info.data_offsets.0..info.data_offsets.1).unwrap_or_default();
        for (value, &bytes) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *value = f32::from_le_bytes(bytes);
        }
        check_finite(name, values)
    }
}

fn check_dtype(name: &str, info: &TensorInfo) -> Result<(), CheckpointError> {
    match info.dtype {
        Dtype::F32 => Ok(()),
        other => Err(CheckpointError::Dtype { tensor: name.to_owned(), dtype: other.to_string() }),
    }
}

fn shape_of(info: &TensorInfo) -> Vec<u64> {
    info.shape.iter().map(|&n| n as u64).collect()
}

fn check_finite(name: &str, values: &[f32]) -> Result<(), CheckpointError> {
    match first_not_finite(values) {
        Some(index) => Err(CheckpointError::NotFinite { tensor: name.to_owned(), index }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn layout(tensors: &[(&str, &[u64])]) -> Arc<Layout> {
        let spec = |&(name, shape): &(&str, &[u64])| TensorSpec { name: name.to_owned(), shape: shape.to_vec() };
        Arc::new(Layout::new(tensors.iter().map(spec).collect()).unwrap())
    }

    /// `z` before `a`: layout order is neither alphabetical nor hash order.
    pub(super) fn model() -> Parameters {
        let layout = layout(&[("z.weight", &[2, 2]), ("a\"\\", &[1]), ("m", &[])]);
        Parameters::new(layout, vec![1.0, -0.0, 3.5, f32::MIN_POSITIVE, 5.0, -6.0]).unwrap()
    }

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    #[test]
    fn a_published_model_has_one_form() {
        let (bytes, model) = (write(&model()).unwrap(), model());
        assert_eq!(read_published(&bytes, model.layout()).unwrap().values(), model.values());
        let length = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        let (header, data) = bytes[8..].split_at(usize::try_from(length).unwrap());
        let header = std::str::from_utf8(header).unwrap();
        let noted = header.replacen('{', r#"{"__metadata__":{"note":"1"},"#, 1);
        for other in [noted, format!("{header}        ")] {
            let same = file(&other, data);
            assert_eq!(read(&same, model.layout()).unwrap().values(), model.values());
            let refused = read_published(&same, model.layout());
            assert!(matches!(refused, Err(CheckpointError::OtherForm)), "{refused:?}");
        }
    }

    #[test]
    fn comes_back_bit_for_bit_in_the_same_order() {
        let bytes = write(&model()).unwrap();
        assert_eq!(bytes, write(&model()).unwrap());
        assert_eq!(read_layout(&bytes).unwrap(), **model().layout());
        let back = read(&bytes, model().layout()).unwrap();
        let bits = |p: &Parameters| p.values().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back), bits(&model()));
    }

    #[test]
    fn bytes_are_a_known_safetensors_file() {
        let one = Parameters::new(layout(&[("b", &[1]), ("a", &[1])]), vec![1.0, 2.0]).unwrap();
        let header = concat!(
            r#"{"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"#,
            r#""a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}     "#
        );
        assert_eq!(header.len() % 8, 0);
        assert_eq!(write(&one).unwrap(), file(header, b"\0\0\x80\x3f\0\0\0\x40"));
    }

    #[test]
    fn reads_files_of_other_tools() {
        let model = model();
        let views = model.layout().tensors().iter().enumerate().map(|(index, tensor)| {
            let data: Vec<u8> = model.tensor(index).iter().flat_map(|v| v.to_le_bytes()).collect();
            (tensor.name.clone(), tensor.shape.iter().map(|&n| usize::try_from(n).unwrap()).collect::<Vec<_>>(), data)
        });
        let views: Vec<_> = views.collect();
        let views = views.iter().map(|(name, shape, data)| {
            (name.clone(), safetensors::tensor::TensorView::new(Dtype::F32, shape.clone(), data).unwrap())
        });
        let metadata = [("format".to_owned(), "pt".to_owned())].into();
        let bytes = safetensors::serialize(views, Some(metadata)).unwrap();
        assert_ne!(bytes, write(&model).unwrap());
        assert_eq!(read(&bytes, model.layout()).unwrap(), model);
    }

    #[test]
    fn refuses_another_model() {
        let bytes = write(&model()).unwrap();
        let error = |tensors: &[(&str, &[u64])]| read(&bytes, &layout(tensors)).unwrap_err();
        let z: (&str, &[u64]) = ("z.weight", &[2, 2]);
        let a: (&str, &[u64]) = ("a\"\\", &[1]);
        let m: (&str, &[u64]) = ("m", &[]);
        assert_eq!(error(&[z, a]), CheckpointError::Unexpected("m".into()));
        assert_eq!(error(&[z, a, m, ("n", &[1])]), CheckpointError::Missing("n".into()));
        let shape = CheckpointError::Shape { tensor: "z.weight".into(), expected: vec![4], got: vec![2, 2] };
        assert_eq!(error(&[("z.weight", &[4]), a, m]), shape);
    }

    #[test]
    fn refuses_bytes_that_are_no_model() {
        let bytes = write(&model()).unwrap();
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length], model().layout()).is_err(), "{length}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(matches!(read(&longer, model().layout()), Err(CheckpointError::Malformed(_))));
        assert_eq!(read_layout(&[0xff; 64]), Err(CheckpointError::HeaderTooLong(u64::MAX)));
        let half = file(r#"{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}"#, &[0; 4]);
        assert_eq!(read_layout(&half), Err(CheckpointError::Dtype { tensor: "a".into(), dtype: "F16".into() }));
        let empty = file(r#"{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#, &[]);
        assert_eq!(read_layout(&empty), Err(LayoutError::BadShape("a".into()).into()));
        assert_eq!(read_layout(&file("{}", &[])), Err(LayoutError::Empty.into()));
        let overlap = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        assert!(matches!(read_layout(&file(overlap, &[0; 4])), Err(CheckpointError::Malformed(_))));
        let huge = r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}"#;
        assert!(matches!(read_layout(&file(huge, &[0; 4])), Err(CheckpointError::Malformed(_))));
    }

    #[test]
    fn neither_writes_nor_reads_what_is_not_finite() {
        let mut model = model();
        let good = write(&model).unwrap();
        model.values_mut()[3] = f32::NAN;
        let error = CheckpointError::NotFinite { tensor: "z.weight".into(), index: 3 };
        assert_eq!(write(&model), Err(error.clone()));
        let mut bad = good.clone();
        let third = good.len() - 3 * 4;
        bad[third..third + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
        assert_eq!(read(&bad, model.layout()), Err(error));
    }
}
