//! NPY files: a header that is a Python dictionary, then the elements.

use super::error::NpzError;

/// An array in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Number of elements along each axis, outermost first; empty for a single element.
    pub shape: Vec<usize>,
    /// As many elements as the product of the shape.
    pub elements: Elements,
}

/// Elements of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// `float32`.
    F32(Vec<f32>),
    /// `float64`.
    F64(Vec<f64>),
    /// `int64`, and integers of a smaller range.
    I64(Vec<i64>),
    /// `bool`.
    Bool(Vec<bool>),
}

impl Elements {
    /// Name of the type in NumPy; that of the widest for integers.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::F32(_) => "float32",
            Self::F64(_) => "float64",
            Self::I64(_) => "int64",
            Self::Bool(_) => "bool",
        }
    }

    /// The elements of a type as NumPy writes it; `None` for another type.
    fn of(descr: &str, bytes: &[u8]) -> Option<Self> {
        Some(match descr {
            "<f4" => Self::F32(numbers(bytes, f32::from_le_bytes)),
            "<f8" => Self::F64(numbers(bytes, f64::from_le_bytes)),
            "|b1" => Self::Bool(bytes.iter().map(|&byte| byte != 0).collect()),
            "|i1" => Self::I64(numbers(bytes, |word| i8::from_le_bytes(word).into())),
            "|u1" => Self::I64(numbers(bytes, |word| u8::from_le_bytes(word).into())),
            "<i2" => Self::I64(numbers(bytes, |word| i16::from_le_bytes(word).into())),
            "<u2" => Self::I64(numbers(bytes, |word| u16::from_le_bytes(word).into())),
            "<i4" => Self::I64(numbers(bytes, |word| i32::from_le_bytes(word).into())),
            "<u4" => Self::I64(numbers(bytes, |word| u32::from_le_bytes(word).into())),
            "<i8" => Self::I64(numbers(bytes, i64::from_le_bytes)),
            _ => return None,
        })
    }
}

/// Reads an NPY file of the format 1, 2 or 3.
pub(super) fn read(name: &str, file: &[u8]) -> Result<Array, NpzError> {
    let damaged = |detail| NpzError::Damaged { name: name.to_owned(), detail };
    let (header, bytes) = split(file).ok_or_else(|| damaged("it does not begin like an NPY file"))?;
    let Header { descr, is_fortran, shape } =
        Header::of(header).ok_or_else(|| damaged("its header is not the dictionary that NumPy writes"))?;
    let Some(elements) = Elements::of(&descr, bytes) else {
        return Err(NpzError::Type { name: name.to_owned(), descr });
    };
    if is_fortran {
        return Err(NpzError::FortranOrder(name.to_owned()));
    }
    let expected = shape.iter().try_fold(size(&descr), |product, &size| product.checked_mul(size));
    if expected != Some(bytes.len()) {
        return Err(NpzError::Length { name: name.to_owned(), shape, found: bytes.len() });
    }
    Ok(Array { shape, elements })
}

/// Bytes of an element: the last digit of its type.
fn size(descr: &str) -> usize {
    descr.bytes().last().map_or(0, |digit| usize::from(digit.saturating_sub(b'0')))
}

/// Header and elements of a file.
fn split(file: &[u8]) -> Option<(&str, &[u8])> {
    let rest = file.strip_prefix(b"\x93NUMPY")?;
    let ([major, _], rest) = rest.split_first_chunk()?;
    let (length, rest) = match major {
        1 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::try_from(u32::from_le_bytes(*length)).ok()?, rest)
        }
        _ => return None,
    };
    let (header, elements) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(header).ok()?, elements))
}

/// The whole numbers of a file; a rest of fewer bytes than a number has is left out.
fn numbers<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|word| read(*word)).collect()
}

/// The dictionary at the beginning of a file.
struct Header {
    /// Byte order, kind and size of the elements.
    descr: String,
    is_fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
    fn of(text: &str) -> Option<Self> {
        let (mut descr, mut is_fortran, mut shape) = (None, None, None);
        let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
        while !rest.is_empty() {
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            rest = match key {
                // A record has a list of types.
                "descr" if value.starts_with('[') => {
                    return Some(Self { descr: "a record".to_owned(), is_fortran: false, shape: Vec::new() });
                }
                "descr" => keep(&mut descr, quoted(value)?),
                "fortran_order" => keep(&mut is_fortran, truth(value)?),
                "shape" => keep(&mut shape, tuple(value)?),
                _ => return None,
            };
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').or_else(|| rest.is_empty().then_some(rest))?.trim_start();
        }
        Some(Self { descr: descr?.to_owned(), is_fortran: is_fortran?, shape: shape? })
    }
}

/// Keeps a value of the dictionary, and returns the text behind it.
fn keep<'a, T>(slot: &mut Option<T>, (value, rest): (T, &'a str)) -> &'a str {
    *slot = Some(value);
    rest
}

/// A text in single quotes, and the text behind it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('\'')?.split_once('\'')
}

/// `True` or `False`, and the text behind it.
fn truth(text: &str) -> Option<(bool, &str)> {
    text.strip_prefix("True").map(|rest| (true, rest)).or_else(|| Some((false, text.strip_prefix("False")?)))
}

/// The numbers of `()`, `(3,)` or `(3, 4)`, and the text behind it.
fn tuple(text: &str) -> Option<(Vec<usize>, &str)> {
    let (sizes, rest) = text.strip_prefix('(')?.split_once(')')?;
    let sizes = sizes.trim();
    let sizes = sizes.strip_suffix(',').unwrap_or(sizes);
    if sizes.is_empty() {
        return Some((Vec::new(), rest));
    }
    let sizes = sizes.split(',').map(|size| size.trim().parse().ok()).collect::<Option<_>>()?;
    Some((sizes, rest))
}
