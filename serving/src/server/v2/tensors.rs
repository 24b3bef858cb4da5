//! Tensors of the Open Inference Protocol v2: numbers in JSON, nested or flat, or binary data.

use std::borrow::Cow;
use std::fmt;

use client_sdk::models::{Architecture, InputKind};
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::super::model::Input;

/// Name of the one input of a model.
pub(super) const INPUT: &str = "input";
/// Names of its outputs.
pub(super) const SCORES: &str = "scores";
pub(super) const CLASSES: &str = "classes";

/// Maximum length of a text, because memory grows with it.
pub(crate) const TEXT_MAX: usize = 4096;
/// Maximum number of scores of an answer (16 MiB): example × position × class.
pub(crate) const SCORES_MAX: usize = 1 << 22;

task_spec::named_enum! {
    /// Element types that requests and answers may use.
    pub enum Datatype {
        Fp32 = "FP32",
        Int64 = "INT64",
    }
}

impl Datatype {
    /// Bytes of an element.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Fp32 => 4,
            Self::Int64 => 8,
        }
    }
}

/// The description of a tensor in a request.
#[derive(Debug, Deserialize)]
pub(super) struct InputTensor<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    pub(super) shape: Vec<u64>,
    #[serde(borrow)]
    pub(super) datatype: Cow<'a, str>,
    #[serde(default)]
    pub(super) parameters: TensorParameters,
    pub(super) data: Option<Flat>,
}

/// Parameters of a tensor in a request.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TensorParameters {
    /// Size of its data in the binary part.
    pub(super) binary_data_size: Option<usize>,
    /// Whether the output is returned as binary data.
    pub(super) binary_data: Option<bool>,
}

/// An input or output tensor in a model's metadata.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorMetadata {
    /// Its name.
    pub name: &'static str,
    /// The type of its numbers.
    pub datatype: Datatype,
    /// -1 for any size.
    pub shape: Vec<i64>,
}

/// Element type and shape of a model's input, with -1 for any size.
fn taken(model: &Architecture) -> (Datatype, [i64; 2]) {
    match model.input() {
        InputKind::Features(width) => (Datatype::Fp32, [-1, i64::try_from(width).unwrap_or(i64::MAX)]),
        InputKind::Characters => (Datatype::Int64, [-1, -1]),
        // Such a model is not served.
        InputKind::Tensors => (Datatype::Fp32, [-1, -1]),
    }
}

/// The input and the outputs of a model.
#[must_use]
pub fn signature(model: &Architecture) -> (TensorMetadata, [TensorMetadata; 2]) {
    let tensor = |name, datatype, shape| TensorMetadata { name, datatype, shape };
    let classes = i64::from(model.classes());
    let (scores, best) = match model.input() {
        InputKind::Features(_) => (vec![-1, classes], vec![-1]),
        InputKind::Characters => (vec![-1, -1, classes], vec![-1, -1]),
        InputKind::Tensors => (vec![-1, -1], vec![-1]),
    };
    let (datatype, shape) = taken(model);
    let outputs = [tensor(SCORES, Datatype::Fp32, scores), tensor(CLASSES, Datatype::Int64, best)];
    (tensor(INPUT, datatype, shape.to_vec()), outputs)
}

/// The numbers of a tensor in JSON: flat, or as nested arrays in row-major order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Flat {
    numbers: Vec<f64>,
    /// Nesting depth of the numbers.
    depth: Option<usize>,
    /// Lengths of the arrays, outermost first; 0 until an array of that depth has ended.
    sizes: Vec<usize>,
    /// Arrays of the same depth have different lengths, or numbers have different depths.
    is_ragged: bool,
}

impl Flat {
    fn push(&mut self, number: f64, depth: usize) {
        self.is_ragged |= *self.depth.get_or_insert(depth) != depth;
        self.numbers.push(number);
    }

    /// Records the end of an array at `depth`.
    fn end(&mut self, depth: usize, length: usize) {
        self.sizes.resize(self.sizes.len().max(depth + 1), 0);
        self.is_ragged |= length == 0 || ![0, length].contains(&self.sizes[depth]);
        self.sizes[depth] = length;
    }

    /// The numbers, if they are flat or nested in this shape.
    fn of_shape(self, shape: &[u64]) -> Result<Vec<f64>, String> {
        let is_nested = || self.sizes.iter().map(|&size| u64::try_from(size).ok()).eq(shape.iter().copied().map(Some));
        if self.is_ragged || (self.sizes.len() > 1 && !is_nested()) {
            return Err(format!("{INPUT}: data is one array, or arrays nested by the shape {shape:?}"));
        }
        Ok(self.numbers)
    }
}

/// Visitor of an array at `depth`.
struct Numbers<'a> {
    into: &'a mut Flat,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Numbers<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[expect(clippy::cast_precision_loss, reason = "what a model takes is far below 2^53, and checked afterwards")]
impl<'de> Visitor<'de> for Numbers<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers, or arrays of numbers")
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.into.push(value, self.depth);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.into.push(value as f64, self.depth);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.into.push(value as f64, self.depth);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { into, depth } = self;
        let mut length = 0;
        while items.next_element_seed(Numbers { into: &mut *into, depth: depth + 1 })?.is_some() {
            length += 1;
        }
        into.end(depth, length);
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Array;
        impl<'de> Visitor<'de> for Array {
            type Value = Flat;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Flat, A::Error> {
                let mut all = Flat::default();
                Numbers { into: &mut all, depth: 0 }.visit_seq(items)?;
                Ok(all)
            }
        }
        deserializer.deserialize_seq(Array)
    }
}

/// The input of a request for this model. `binary`: the bytes after the JSON.
///
/// # Errors
/// What is wrong, and what would be right.
pub(super) fn input(model: &Architecture, tensors: Vec<InputTensor<'_>>, binary: &[u8]) -> Result<Input, String> {
    let (expected, sizes) = taken(model);
    let [tensor] = <[InputTensor<'_>; 1]>::try_from(tensors)
        .map_err(|tensors| format!("inputs: this model takes one, `{INPUT}`; these are {}", tensors.len()))?;
    let InputTensor { name, shape, datatype, parameters, data } = tensor;
    if name != INPUT {
        return Err(format!("inputs: this model's is called `{INPUT}`, not {name:?}"));
    }
    if datatype != expected.as_str() {
        return Err(format!("{INPUT}: its datatype is {}, not {datatype:?}", expected.as_str()));
    }
    let fits = shape.len() == sizes.len()
        && shape.iter().zip(sizes).all(|(&size, one)| one == -1 || i64::try_from(size) == Ok(one));
    if !fits {
        return Err(format!("{INPUT}: its shape is {sizes:?} with -1 for any size, and this is {shape:?}"));
    }
    let elements = shape.iter().try_fold(1_u64, |all, &size| all.checked_mul(size));
    let elements = elements.and_then(|elements| usize::try_from(elements).ok()).filter(|elements| *elements > 0);
    let elements = elements.ok_or_else(|| format!("{INPUT}: the shape {shape:?} holds nothing, or too much"))?;
    check_sizes(model, &shape, elements)?;
    let told = match (data, parameters.binary_data_size) {
        (Some(data), None) if binary.is_empty() => Elements::Numbers(data.of_shape(&shape)?),
        (Some(_), None) => {
            return Err(format!("{INPUT}: data are in the JSON, and {} bytes follow it", binary.len()));
        }
        (None, Some(size)) if size != binary.len() => {
            return Err(format!("{INPUT}: binary_data_size is {size}, and {} bytes follow the JSON", binary.len()));
        }
        (None, Some(size)) => {
            let each = expected.bytes();
            if elements.checked_mul(each) != Some(size) {
                let detail = format!("the shape {shape:?} holds {elements} elements of {each} bytes");
                return Err(format!("{INPUT}: {detail}, and binary_data_size is {size}"));
            }
            Elements::Bytes(binary)
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(format!("{INPUT}: give either data, or binary_data_size and that many bytes after the JSON"));
        }
    };
    if let Elements::Numbers(numbers) = &told
        && numbers.len() != elements
    {
        return Err(format!("{INPUT}: the shape {shape:?} holds {elements} elements, and these are {}", numbers.len()));
    }
    match model.input() {
        InputKind::Features(width) => Ok(Input::Rows { values: rows(told)?, width }),
        InputKind::Tensors => Err("this model takes inputs by name, which are not served".to_owned()),
        InputKind::Characters => {
            let length = usize::try_from(shape[1]).unwrap_or(usize::MAX);
            Ok(Input::Texts { characters: characters(told, model.classes())?, length })
        }
    }
}

/// Checks the request's sizes against the general limits, because memory grows with them and not with the body.
fn check_sizes(model: &Architecture, shape: &[u64], elements: usize) -> Result<(), String> {
    let size = |place: usize| shape.get(place).and_then(|&size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
    let (rows, each) = match model.input() {
        InputKind::Features(_) | InputKind::Tensors => (size(0), 1),
        InputKind::Characters => (elements, size(1)),
    };
    if each > TEXT_MAX {
        return Err(format!("{INPUT}: a text has at most {TEXT_MAX} characters here, and these have {each}"));
    }
    let classes = usize::try_from(model.classes()).unwrap_or(usize::MAX).max(1);
    if rows.checked_mul(classes).is_none_or(|scores| scores > SCORES_MAX) {
        let most = (SCORES_MAX / classes / each.max(1)).max(1);
        return Err(format!(
            "{INPUT}: an answer has at most {SCORES_MAX} scores: ask about {most} such examples at once"
        ));
    }
    Ok(())
}

/// The elements of a tensor, as many as its shape requires.
enum Elements<'a> {
    /// From JSON, in row-major order, not yet rounded to the tensor's datatype.
    Numbers(Vec<f64>),
    /// From the binary part.
    Bytes(&'a [u8]),
}

fn rows(told: Elements<'_>) -> Result<Vec<f32>, String> {
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    let narrow = |number: f64| number as f32;
    let values: Vec<f32> = match told {
        Elements::Numbers(numbers) => numbers.into_iter().map(narrow).collect(),
        Elements::Bytes(bytes) => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
    };
    // Checks all elements without an early exit, so that the loop vectorizes.
    if values.iter().fold(true, |all, value| all & value.is_finite()) {
        return Ok(values);
    }
    let place = values.iter().position(|value| !value.is_finite()).unwrap_or_default();
    // The value is not reported, because inputs must not leak.
    Err(format!("{INPUT}: element {place} is no finite FP32"))
}

fn characters(told: Elements<'_>, vocabulary: u32) -> Result<Vec<u32>, String> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number in range")]
    let of_number = |number: f64| {
        let is_one = number.fract() == 0.0 && (0.0..f64::from(vocabulary)).contains(&number);
        is_one.then_some(number as u32)
    };
    let of_bytes =
        |bytes: &[u8; 8]| u32::try_from(i64::from_le_bytes(*bytes)).ok().filter(|character| *character < vocabulary);
    let wrong = |place: usize| format!("{INPUT}: element {place} is no whole number from 0 to {}", vocabulary - 1);
    let checked = |(place, character): (usize, Option<u32>)| character.ok_or_else(|| wrong(place));
    match told {
        Elements::Numbers(numbers) => numbers.into_iter().map(of_number).enumerate().map(checked).collect(),
        Elements::Bytes(bytes) => bytes.as_chunks().0.iter().map(of_bytes).enumerate().map(checked).collect(),
    }
}

#[cfg(test)]
mod tests {
    use client_sdk::models::{Gru, Linear};

    use super::*;

    fn asked(model: &Architecture, json: &str, binary: &[u8]) -> Result<Input, String> {
        let tensors = serde_json::from_str(json).map_err(|error| error.to_string())?;
        input(model, tensors, binary)
    }

    #[test]
    fn rows_come_nested_flat_or_as_bytes() {
        let model = Architecture::Linear(Linear { inputs: 2, classes: 3 });
        let expected = Input::Rows { values: vec![1.0, 2.5, -3.0, 4.0], width: 2 };
        let with = |data: &str| format!(r#"[{{"name":"input","shape":[2,2],"datatype":"FP32",{data}}}]"#);
        assert_eq!(asked(&model, &with(r#""data":[[1,2.5],[-3,4]]"#), &[]), Ok(expected.clone()));
        assert_eq!(asked(&model, &with(r#""data":[1,2.5,-3,4]"#), &[]), Ok(expected.clone()));
        let bytes: Vec<u8> = [1.0_f32, 2.5, -3.0, 4.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(asked(&model, &with(r#""parameters":{"binary_data_size":16}"#), &bytes), Ok(expected));
        let nan: Vec<u8> = [f32::NAN; 4].iter().flat_map(|value| value.to_le_bytes()).collect();
        for (data, binary, why) in [
            (r#""data":[[1,2.5,-3],[4]]"#, &[][..], "nested by the shape [2, 2]"),
            (r#""data":[[1,2.5,-3,4]]"#, &[], "nested by the shape [2, 2]"),
            (r#""data":[1,2.5,[-3,4]]"#, &[], "nested by the shape [2, 2]"),
            (r#""data":[1,2.5,-3,4,[]]"#, &[], "nested by the shape [2, 2]"),
            (r#""data":[[[1],[2.5]],[[-3],[4]]]"#, &[], "nested by the shape [2, 2]"),
            (r#""data":[1,2.5,-3,4]"#, &bytes[..1], "and 1 bytes follow it"),
            (r#""parameters":{"binary_data_size":17}"#, &[bytes.as_slice(), &[0]].concat(), "4 elements of 4 bytes"),
            (r#""data":[1,2,3]"#, &[][..], "holds 4 elements, and these are 3"),
            (r#""data":[1,2,3,1e300]"#, &[], "element 3 is no finite FP32"),
            (r#""data":[1,2,3,1e999]"#, &[], "number out of range"),
            (r#""data":[1,2,3,"a"]"#, &[], "expected numbers, or arrays of numbers"),
            (r#""data":5"#, &[], "an array of numbers"),
            (r#""data":[1,2,3,null]"#, &[], "numbers, or arrays of numbers"),
            (r#""parameters":{"binary_data_size":16}"#, &bytes[..15], "and 15 bytes follow"),
            (r#""parameters":{"binary_data_size":16}"#, &nan, "element 0 is no finite FP32"),
            (r#""parameters":{}"#, &[], "give either data"),
        ] {
            let told = asked(&model, &with(data), binary).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        for (json, why) in [
            ("[]", "this model takes one, `input`; these are 0"),
            (r#"[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]"#, "called `input`, not \"x\""),
            (r#"[{"name":"input","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]"#, "shape is [-1, 2]"),
            (r#"[{"name":"input","shape":[2],"datatype":"FP32","data":[1,2]}]"#, "shape is [-1, 2]"),
            (r#"[{"name":"input","shape":[0,2],"datatype":"FP32","data":[]}]"#, "holds nothing, or too much"),
            (r#"[{"name":"input","shape":[9223372036854775808,2],"datatype":"FP32","data":[]}]"#, "too much"),
            (r#"[{"name":"input","shape":[-1,2],"datatype":"FP32","data":[1,2]}]"#, "invalid value"),
            (r#"[{"name":"input","shape":[1,2],"datatype":"FP64","data":[1,2]}]"#, "FP32, not \"FP64\""),
        ] {
            let told = asked(&model, json, &[]).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn bytes_are_taken_to_the_bit() {
        let model = Architecture::Linear(Linear { inputs: 4, classes: 3 });
        let values = [f32::MIN_POSITIVE / 2.0, -0.0, f32::MAX, 0.1];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let json = r#"[{"name":"i\u006eput","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}]"#;
        let Ok(Input::Rows { values: taken, .. }) = asked(&model, json, &bytes) else { panic!("rows are taken") };
        assert!(taken.iter().map(|value| value.to_bits()).eq(values.map(f32::to_bits)));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let bytes: Vec<u8> = [0.0, 1.0, bad, bad].iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(asked(&model, json, &bytes), Err("input: element 2 is no finite FP32".to_owned()));
        }
    }

    #[test]
    fn texts_are_whole_numbers_below_the_vocabulary() {
        let model = Architecture::Gru(Gru::with_vocabulary(5));
        let with = |data: &str| {
            asked(&model, &format!(r#"[{{"name":"input","shape":[1,3],"datatype":"INT64","data":{data}}}]"#), &[])
        };
        let expected = Ok(Input::Texts { characters: vec![0, 4, 1], length: 3 });
        assert_eq!(with("[0,4,1]"), expected);
        let as_bytes = |characters: [i64; 3]| {
            let bytes: Vec<u8> = characters.iter().flat_map(|character| character.to_le_bytes()).collect();
            let json = r#"[{"name":"input","shape":[1,3],"datatype":"INT64","parameters":{"binary_data_size":24}}]"#;
            asked(&model, json, &bytes)
        };
        assert_eq!(as_bytes([0, 4, 1]), expected);
        for wrong in [5, -1, i64::MAX, i64::MIN, 1 << 32] {
            let told = as_bytes([0, wrong, 1]).unwrap_err();
            assert!(told.contains("element 1 is no whole number from 0 to 4"), "{wrong}: {told}");
        }
        for wrong in ["[0,5,1]", "[0,-1,1]", "[0,0.5,1]", "[0,18446744073709551615,1]"] {
            assert!(with(wrong).unwrap_err().contains("from 0 to 4"), "{wrong}");
        }
    }

    #[test]
    fn what_would_take_memory_without_end_is_refused() {
        let model = Architecture::Gru(Gru::with_vocabulary(100));
        let with = |examples: usize, length: usize| {
            let size = 8 * examples * length;
            let json = format!(
                r#"[{{"name":"input","shape":[{examples},{length}],"datatype":"INT64","parameters":{{"binary_data_size":{size}}}}}]"#
            );
            asked(&model, &json, &vec![0; size])
        };
        assert!(with(1, TEXT_MAX).is_ok() && with(10, TEXT_MAX).is_ok());
        let told = with(1, TEXT_MAX + 1).unwrap_err();
        assert!(told.contains("at most 4096 characters here, and these have 4097"), "{told}");
        let told = with(11, TEXT_MAX).unwrap_err();
        assert!(told.contains("at most 4194304 scores: ask about 10 such examples"), "{told}");
        let wide = Architecture::Linear(Linear { inputs: 1, classes: 1 << 20 });
        let told = asked(&wide, r#"[{"name":"input","shape":[5,1],"datatype":"FP32","data":[1,2,3,4,5]}]"#, &[]);
        assert!(told.unwrap_err().contains("ask about 4 such examples"));
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow_of_the_stack() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(serde_json::from_str::<Flat>(&deep).unwrap_err().to_string().contains("recursion limit"));
    }
}
