//! Model parameters as safetensors bytes, `F32` only, so that other tools can read a published model.
//!
//! A model version is identified by its digest, so equal parameters always give equal bytes: tensors in layout order,
//! no metadata. The reader checks the header against the expected layout before it allocates anything of the claimed
//! size.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;

use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::parameters::{Layout, LayoutError, Parameters, TensorSpec, first_not_finite};

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
    /// The file has a tensor that the expected model does not have.
    #[error("tensor {0:?} does not belong to the model")]
    Unexpected(String),
    /// A tensor has another shape.
    #[error("tensor {tensor:?} has shape {got:?} where the model has {expected:?}")]
    Shape { tensor: String, expected: Vec<u64>, got: Vec<u64> },
    /// The values are right, but [`write`] would encode them as other bytes.
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

/// Writes parameters as safetensors; equal layouts and values give equal bytes.
///
/// # Errors
/// [`CheckpointError::NotFinite`]: every reader would reject the model.
pub fn write(parameters: &Parameters) -> Result<Vec<u8>, CheckpointError> {
    write_file(None, &items(parameters))
}

fn items(parameters: &Parameters) -> Vec<Item<'_>> {
    let tensors = parameters.layout().tensors().iter().enumerate();
    tensors
        .map(|(index, tensor)| Item {
            name: tensor.name.clone(),
            shape: &tensor.shape,
            values: parameters.tensor(index),
        })
        .collect()
}

/// Reads the names and shapes of the tensors, in the order of their data, without reading values.
///
/// # Errors
/// Any [`CheckpointError`] except those that concern an expected model.
pub fn read_layout(bytes: &[u8]) -> Result<Layout, CheckpointError> {
    layout_of(&File::parse(bytes)?.metadata)
}

/// Reads a model of a known layout. The file may hold the tensors in any order but must hold exactly these.
///
/// # Errors
/// Any [`CheckpointError`].
pub fn read(bytes: &[u8], expected: &Arc<Layout>) -> Result<Parameters, CheckpointError> {
    let file = File::parse(bytes)?;
    let found = layout_of(&file.metadata)?;
    if let Some(extra) = found.tensors().iter().find(|tensor| expected.find(&tensor.name).is_none()) {
        return Err(CheckpointError::Unexpected(extra.name.clone()));
    }
    for tensor in expected.tensors() {
        file.expect(&tensor.name, &tensor.shape)?;
    }
    let mut parameters = Parameters::zeros(Arc::clone(expected));
    for (index, tensor) in expected.tensors().iter().enumerate() {
        file.fill(&tensor.name, &mut parameters.values_mut()[expected.range(index)])?;
    }
    Ok(parameters)
}

/// Reads a published model. Only the bytes that [`write`] produces are accepted, so that no model has two digests.
///
/// # Errors
/// As for [`read`], and [`CheckpointError::OtherForm`].
pub fn read_published(bytes: &[u8], expected: &Arc<Layout>) -> Result<Parameters, CheckpointError> {
    let parameters = read(bytes, expected)?;
    let header = padded_header(None, &items(&parameters))?;
    let length = (header.len() as u64).to_le_bytes();
    // With this header the data are the values in layout order, which is how they were read.
    let is_as_written = bytes.strip_prefix(&length).is_some_and(|rest| rest.starts_with(&header));
    if is_as_written { Ok(parameters) } else { Err(CheckpointError::OtherForm) }
}

/// Bytes of a file's data that are read at once.
const PIECE: usize = 64 << 10;

/// Reads a published model from a file, with one small buffer in memory beside the parameters. Accepts what
/// [`read_published`] accepts.
///
/// # Errors
/// Of the file; within, as for [`read_published`].
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

/// A tensor to be written.
pub(crate) struct Item<'a> {
    pub(crate) name: String,
    pub(crate) shape: &'a [u64],
    /// Values, row-major; as many as the shape implies.
    pub(crate) values: &'a [f32],
}

/// Writes tensors in the given order. `metadata` has at most one entry: the order of several would not be fixed.
pub(crate) fn write_file(
    metadata: Option<HashMap<String, String>>,
    items: &[Item<'_>],
) -> Result<Vec<u8>, CheckpointError> {
    for item in items {
        check_finite(&item.name, item.values)?;
    }
    let header = padded_header(metadata, items)?;
    let values: usize = items.iter().map(|item| item.values.len()).sum();
    let mut bytes = Vec::with_capacity(8 + header.len() + 4 * values);
    bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&header);
    for value in items.iter().flat_map(|item| item.values) {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    Ok(bytes)
}

fn padded_header(metadata: Option<HashMap<String, String>>, items: &[Item<'_>]) -> Result<Vec<u8>, CheckpointError> {
    let mut header = header(metadata, items)?;
    // The format asks for data at a multiple of 8.
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

fn header(metadata: Option<HashMap<String, String>>, items: &[Item<'_>]) -> Result<Vec<u8>, CheckpointError> {
    let malformed = |error: &dyn std::fmt::Display| CheckpointError::Malformed(error.to_string());
    let mut start = 0;
    let mut describe = |item: &Item<'_>| -> Result<_, CheckpointError> {
        let shape = item.shape.iter().map(|&n| usize::try_from(n)).collect::<Result<_, _>>();
        let shape = shape.map_err(|error| malformed(&error))?;
        let end = start + 4 * item.values.len();
        let info = TensorInfo { dtype: Dtype::F32, shape, data_offsets: (start, end) };
        start = end;
        Ok((item.name.clone(), info))
    };
    let tensors = items.iter().map(&mut describe).collect::<Result<_, _>>()?;
    let metadata = Metadata::new(metadata, tensors).map_err(|error| malformed(&error))?;
    serde_json::to_vec(&metadata).map_err(|error| malformed(&error))
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

    /// Reads the values of a tensor that [`Self::expect`] has checked.
    pub(crate) fn fill(&self, name: &str, values: &mut [f32]) -> Result<(), CheckpointError> {
        let info = self.metadata.info(name).ok_or_else(|| CheckpointError::Missing(name.to_owned()))?;
        let bytes = self.data.get(info.data_offsets.0..info.data_offsets.1).unwrap_or_default();
        for (value, &bytes) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *value = f32::from_le_bytes(bytes);
        }
        check_finite(name, values)
    }
}

fn layout_of(metadata: &Metadata) -> Result<Layout, CheckpointError> {
    let mut tensors = Vec::new();
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else { continue };
        check_dtype(&name, info)?;
        let shape = shape_of(info);
        tensors.push(TensorSpec { name, shape });
    }
    Ok(Layout::new(tensors)?)
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

    fn layout(tensors: &[(&str, &[u64])]) -> Arc<Layout> {
        let spec = |&(name, shape): &(&str, &[u64])| TensorSpec { name: name.to_owned(), shape: shape.to_vec() };
        Arc::new(Layout::new(tensors.iter().map(spec).collect()).unwrap())
    }

    /// `z` before `a`: layout order is neither alphabetical nor hash order.
    fn model() -> Parameters {
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
