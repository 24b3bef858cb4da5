//! Elements of tensors that are known at import.

use graph::{Element, Values};
use half::{bf16, f16};

use crate::proto::{self, element};

/// Elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    F32(Vec<f32>),
    I64(Vec<i64>),
    Bool(Vec<bool>),
}

/// Most elements of one tensor.
const MAX_ELEMENTS: i64 = 1 << 28;
/// Most axes of a tensor, also of those between the operations of which an operator is made.
pub(crate) const MAX_RANK: usize = 32;

impl Data {
    pub(crate) fn element(&self) -> Element {
        match self {
            Self::F32(_) => Element::F32,
            Self::I64(_) => Element::I64,
            Self::Bool(_) => Element::Bool,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::Bool(values) => values.len(),
        }
    }

    /// The elements at these positions; the caller guarantees that they are inside.
    pub(crate) fn pick(&self, positions: &[usize]) -> Self {
        match self {
            Self::F32(values) => Self::F32(positions.iter().map(|position| values[*position]).collect()),
            Self::I64(values) => Self::I64(positions.iter().map(|position| values[*position]).collect()),
            Self::Bool(values) => Self::Bool(positions.iter().map(|position| values[*position]).collect()),
        }
    }

    /// Whether all elements are the same bits.
    pub(crate) fn is_uniform(&self) -> bool {
        match self {
            Self::F32(values) => values.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits()),
            Self::I64(values) => values.windows(2).all(|pair| pair[0] == pair[1]),
            Self::Bool(values) => values.windows(2).all(|pair| pair[0] == pair[1]),
        }
    }

    /// Whether both have the same bits.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::F32(a), Self::F32(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
            }
            (Self::I64(_) | Self::Bool(_) | Self::F32(_), _) => self == other,
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "conversions as Cast has them")]
    pub(crate) fn cast(&self, to: Element) -> Self {
        match (self, to) {
            (Self::F32(_), Element::F32) | (Self::I64(_), Element::I64) | (Self::Bool(_), Element::Bool) => {
                self.clone()
            }
            (Self::F32(v), Element::I64) => Self::I64(v.iter().map(|v| *v as i64).collect()),
            (Self::F32(v), Element::Bool) => Self::Bool(v.iter().map(|v| *v != 0.0).collect()),
            (Self::I64(v), Element::F32) => Self::F32(v.iter().map(|v| *v as f32).collect()),
            (Self::I64(v), Element::Bool) => Self::Bool(v.iter().map(|v| *v != 0).collect()),
            (Self::Bool(v), Element::F32) => Self::F32(v.iter().map(|v| f32::from(u8::from(*v))).collect()),
            (Self::Bool(v), Element::I64) => Self::I64(v.iter().map(|v| i64::from(*v)).collect()),
        }
    }

    pub(crate) fn into_values(self) -> Values {
        match self {
            Self::F32(values) => Values::F32(values),
            Self::I64(values) => Values::I64(values),
            Self::Bool(values) => Values::Bool(values),
        }
    }
}

/// The type of elements that stands for one of ONNX's.
pub(crate) fn element_of(onnx: i32) -> Result<Element, String> {
    match onnx {
        element::FLOAT | element::FLOAT16 | element::DOUBLE | element::BFLOAT16 => Ok(Element::F32),
        element::UINT8..=element::INT64 | element::UINT32 | element::UINT64 => Ok(Element::I64),
        element::BOOL => Ok(Element::Bool),
        element::STRING => Err("strings cannot be trained on; give numbers as inputs".to_owned()),
        other => Err(format!("elements of ONNX's type {other} are not supported; floats, integers and bool are")),
    }
}

/// Shape and elements of a tensor.
pub(crate) fn decode(tensor: proto::Tensor) -> Result<(Vec<i64>, Data), String> {
    if tensor.location != 0 || !tensor.external.is_empty() {
        return Err("its data are in another file, which is never opened; export with `external_data=False`".to_owned());
    }
    let count = count(&tensor.dims)?;
    let data = match element_of(tensor.element)? {
        Element::F32 => Data::F32(floats(&tensor)?),
        Element::I64 => Data::I64(integers(&tensor)?),
        Element::Bool => Data::Bool(if tensor.raw.is_empty() {
            tensor.int32s.iter().map(|value| *value != 0).collect()
        } else {
            tensor.raw.iter().map(|value| *value != 0).collect()
        }),
    };
    if data.len() == count {
        Ok((tensor.dims, data))
    } else {
        Err(format!("shape {:?} takes {count} elements, but it has {}", tensor.dims, data.len()))
    }
}

/// Number of elements of a shape. The product of any of its sizes, too, is at most 2^28.
pub(crate) fn count(dims: &[i64]) -> Result<usize, String> {
    if dims.len() > MAX_RANK {
        return Err(format!("a shape has {} axes; at most {MAX_RANK} are supported", dims.len()));
    }
    // Other sizes beside a 0 are bounded as well.
    let mut product: i64 = 1;
    for dim in dims {
        if *dim < 0 {
            return Err(format!("shape {dims:?} has a negative size"));
        }
        product = product
            .checked_mul((*dim).max(1))
            .filter(|product| *product <= MAX_ELEMENTS)
            .ok_or_else(|| format!("shape {dims:?} has more than {MAX_ELEMENTS} elements"))?;
    }
    usize::try_from(if dims.contains(&0) { 0 } else { product }).map_err(|error| error.to_string())
}

/// Elements of `N` bytes.
fn raw<const N: usize, T>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Result<Vec<T>, String> {
    let (chunks, rest) = bytes.as_chunks::<N>();
    if rest.is_empty() {
        Ok(chunks.iter().map(|chunk| read(*chunk)).collect())
    } else {
        Err(format!("{} bytes of data are no multiple of {N}", bytes.len()))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "16 bits are the low half of an int32")]
fn floats(tensor: &proto::Tensor) -> Result<Vec<f32>, String> {
    let halves = || tensor.int32s.iter().map(|value| *value as u16);
    match (tensor.element, tensor.raw.is_empty()) {
        (element::FLOAT16, true) => Ok(halves().map(|bits| f16::from_bits(bits).to_f32()).collect()),
        (element::FLOAT16, false) => raw(&tensor.raw, |bytes| f16::from_le_bytes(bytes).to_f32()),
        (element::BFLOAT16, true) => Ok(halves().map(|bits| bf16::from_bits(bits).to_f32()).collect()),
        (element::BFLOAT16, false) => raw(&tensor.raw, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        (element::DOUBLE, true) => Ok(tensor.doubles.iter().map(|value| *value as f32).collect()),
        (element::DOUBLE, false) => raw(&tensor.raw, |bytes| f64::from_le_bytes(bytes) as f32),
        (_, true) => Ok(tensor.floats.clone()),
        (_, false) => raw(&tensor.raw, f32::from_le_bytes),
    }
}

#[expect(clippy::cast_possible_wrap, reason = "identifiers and sizes above 2^63 do not occur")]
fn integers(tensor: &proto::Tensor) -> Result<Vec<i64>, String> {
    if tensor.raw.is_empty() {
        return Ok(match tensor.element {
            element::INT64 => tensor.int64s.clone(),
            element::UINT32 | element::UINT64 => tensor.uint64s.iter().map(|value| *value as i64).collect(),
            _ => tensor.int32s.iter().map(|value| i64::from(*value)).collect(),
        });
    }
    match tensor.element {
        element::UINT8 => raw(&tensor.raw, |bytes: [u8; 1]| i64::from(bytes[0])),
        element::INT8 => raw(&tensor.raw, |bytes| i64::from(i8::from_le_bytes(bytes))),
        element::UINT16 => raw(&tensor.raw, |bytes| i64::from(u16::from_le_bytes(bytes))),
        element::INT16 => raw(&tensor.raw, |bytes| i64::from(i16::from_le_bytes(bytes))),
        element::INT32 => raw(&tensor.raw, |bytes| i64::from(i32::from_le_bytes(bytes))),
        element::UINT32 => raw(&tensor.raw, |bytes| i64::from(u32::from_le_bytes(bytes))),
        element::UINT64 => raw(&tensor.raw, |bytes| u64::from_le_bytes(bytes) as i64),
        _ => raw(&tensor.raw, i64::from_le_bytes),
    }
}

/// The name of a type of floats other than 32 bits.
pub(crate) fn other_float(onnx: i32) -> Option<&'static str> {
    match onnx {
        element::FLOAT16 => Some("16-bit floats"),
        element::BFLOAT16 => Some("bfloat16"),
        element::DOUBLE => Some("64-bit floats"),
        _ => None,
    }
}
