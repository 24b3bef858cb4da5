//! Tensors of the Open Inference Protocol v2: numbers in JSON, nested or flat, or binary data.

use std::borrow::Cow;

use client_sdk::models::{Architecture, InputKind};
use client_sdk::train::Tensor;
use serde::Deserialize;

use super::flat::Flat;
use super::signatures::{Datatype, INPUT, Signature, TensorMetadata};
use crate::server::graphs::{ANSWER_MAX, Served};
use crate::server::input::{Examples, Input};

/// Maximum length of a text, because memory grows with it.
pub(crate) const TEXT_MAX: usize = 4096;
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

/// The inputs of a request, and the shapes of the model's outputs for them.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) input: Input,
    pub(super) shapes: Vec<Vec<usize>>,
}

/// The input of a request for a ready model. `binary`: the bytes after the JSON.
///
/// # Errors
/// What is wrong, and what would be right.
pub(super) fn input(
    model: &Architecture,
    signature: &Signature,
    tensors: Vec<InputTensor<'_>>,
    binary: &[u8],
) -> Result<Asked, String> {
    let [tensor] = <[InputTensor<'_>; 1]>::try_from(tensors)
        .map_err(|tensors| format!("inputs: this model takes one, `{INPUT}`; these are {}", tensors.len()))?;
    let expected = match &signature.inputs[..] {
        [expected] if tensor.name == INPUT => expected,
        _ => return Err(format!("inputs: this model's is called `{INPUT}`, not {:?}", tensor.name)),
    };
    let form = Form::of(&tensor, expected)?;
    check_sizes(model, &tensor.shape, form.elements)?;
    let shape = tensor.shape.clone();
    let mut rest = binary;
    let told = form.read(tensor, &mut rest)?;
    check_rest(binary, rest)?;
    let size = |place: usize| shape.get(place).and_then(|&size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
    let classes = usize::try_from(model.classes()).unwrap_or(usize::MAX);
    match model.input() {
        InputKind::Features(width) => {
            let input = Input::Rows { values: floats(INPUT, told)?, width };
            Ok(Asked { input, shapes: vec![vec![size(0), classes], vec![size(0)]] })
        }
        InputKind::Tensors => Err("this model takes inputs by name".to_owned()),
        InputKind::Characters => {
            let characters = characters(told, model.classes())?;
            let shapes = vec![vec![size(0), size(1), classes], vec![size(0), size(1)]];
            Ok(Asked { input: Input::Texts { characters, length: size(1) }, shapes })
        }
    }
}

/// The inputs of a request for a graph, in any order. `binary`: the bytes after the JSON, tensor after tensor.
///
/// # Errors
/// What is wrong, and what would be right.
pub(super) fn graph_inputs(
    graph: &Served,
    signature: &Signature,
    tensors: Vec<InputTensor<'_>>,
    binary: &[u8],
) -> Result<Asked, String> {
    let names = || signature.inputs.iter().map(|input| format!("`{}`", input.name)).collect::<Vec<_>>().join(", ");
    let mut forms: Vec<Option<Form>> = Vec::new();
    forms.resize_with(signature.inputs.len(), || None);
    let mut shapes: Vec<Vec<usize>> = vec![Vec::new(); signature.inputs.len()];
    let mut order = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        let found = signature.inputs.iter().position(|expected| expected.name == tensor.name);
        let position =
            found.ok_or_else(|| format!("inputs: this model takes {}, and no {:?}", names(), tensor.name))?;
        let form = Form::of(tensor, &signature.inputs[position])?;
        if forms[position].replace(form).is_some() {
            return Err(format!("inputs: `{}` is there twice", tensor.name));
        }
        shapes[position] = tensor.shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
        order.push(position);
    }
    if order.len() != signature.inputs.len() {
        return Err(format!("inputs: this model takes {}; these are {}", names(), order.len()));
    }
    let views: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let point = graph.model().graph().point_of(&views).map_err(|error| error.to_string())?;
    // Before numbers are converted, and before anything is computed.
    let outputs = graph.shapes(point)?;
    let mut read: Vec<Option<Tensor>> = vec![None; order.len()];
    let mut rest = binary;
    for (tensor, position) in tensors.into_iter().zip(order) {
        let Some(form) = forms[position].take() else { continue };
        let name = tensor.name.clone().into_owned();
        let told = form.read(tensor, &mut rest)?;
        read[position] = Some(elements(&name, signature.inputs[position].datatype, told)?);
    }
    check_rest(binary, rest)?;
    let tensors = read.into_iter().flatten().collect();
    let examples = Examples { tensors, count: point.batch as usize, length: point.length };
    Ok(Asked { input: Input::Tensors(examples), shapes: outputs })
}

/// Checks that the tensors have used all bytes after the JSON.
fn check_rest(binary: &[u8], rest: &[u8]) -> Result<(), String> {
    match rest.len() {
        0 => Ok(()),
        left => Err(format!(
            "inputs: the tensors take {} bytes after the JSON, and {} bytes follow it",
            binary.len() - left,
            binary.len()
        )),
    }
}

/// The type and the number of elements of a tensor in a request.
struct Form {
    datatype: Datatype,
    elements: usize,
}

impl Form {
    /// Those of a tensor that has the right type and a shape that fits.
    fn of(tensor: &InputTensor<'_>, expected: &TensorMetadata) -> Result<Self, String> {
        let InputTensor { name, shape, datatype, .. } = tensor;
        let sizes = &expected.shape;
        let is_short = expected.datatype == Datatype::Int64 && datatype == Datatype::Int32.as_str();
        if datatype != expected.datatype.as_str() && !is_short {
            return Err(format!("{name}: its datatype is {}, not {datatype:?}", expected.datatype.as_str()));
        }
        let fits = shape.len() == sizes.len()
            && shape.iter().zip(sizes).all(|(&size, &one)| one == -1 || i64::try_from(size) == Ok(one));
        if !fits {
            return Err(format!("{name}: its shape is {sizes:?} with -1 for any size, and this is {shape:?}"));
        }
        let elements = shape.iter().try_fold(1_u64, |all, &size| all.checked_mul(size));
        let elements = elements.and_then(|elements| usize::try_from(elements).ok()).filter(|elements| *elements > 0);
        let elements = elements.ok_or_else(|| format!("{name}: the shape {shape:?} holds nothing, or too much"))?;
        Ok(Self { datatype: if is_short { Datatype::Int32 } else { expected.datatype }, elements })
    }

    /// The tensor's elements, from its JSON or from the front of the bytes that follow.
    fn read<'b>(self, tensor: InputTensor<'_>, rest: &mut &'b [u8]) -> Result<Elements<'b>, String> {
        let Self { datatype, elements } = self;
        let InputTensor { name, shape, parameters, data, .. } = tensor;
        match (data, parameters.binary_data_size) {
            (Some(data), None) => {
                let numbers = data.of_shape(&name, datatype, &shape)?;
                if numbers.len() != elements {
                    let detail = format!("the shape {shape:?} holds {elements} elements, and these are");
                    return Err(format!("{name}: {detail} {}", numbers.len()));
                }
                Ok(Elements::Numbers(numbers))
            }
            (None, Some(size)) => {
                let Some((own, others)) = rest.split_at_checked(size) else {
                    let left = rest.len();
                    return Err(format!("{name}: binary_data_size is {size}, and {left} bytes follow the JSON"));
                };
                let each = datatype.bytes();
                if elements.checked_mul(each) != Some(size) {
                    let detail = format!("the shape {shape:?} holds {elements} elements of {each} bytes");
                    return Err(format!("{name}: {detail}, and binary_data_size is {size}"));
                }
                *rest = others;
                Ok(if datatype == Datatype::Int32 { Elements::Short(own) } else { Elements::Bytes(own) })
            }
            (Some(_), Some(_)) | (None, None) => {
                Err(format!("{name}: give either data, or binary_data_size and that many bytes after the JSON"))
            }
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
    if rows.checked_mul(classes).is_none_or(|scores| scores > ANSWER_MAX) {
        let most = (ANSWER_MAX / classes / each.max(1)).max(1);
        return Err(format!(
            "{INPUT}: an answer has at most {ANSWER_MAX} scores: ask about {most} such examples at once"
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
    /// The same as integers of 32 bits.
    Short(&'a [u8]),
}

/// The elements of an input of a graph.
fn elements(name: &str, datatype: Datatype, told: Elements<'_>) -> Result<Tensor, String> {
    match datatype {
        Datatype::Fp32 => floats(name, told).map(Tensor::F32),
        Datatype::Int64 | Datatype::Int32 => integers(name, told).map(Tensor::I64),
        Datatype::Bool => truths(name, told).map(Tensor::Bool),
    }
}

fn floats(name: &str, told: Elements<'_>) -> Result<Vec<f32>, String> {
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    let narrow = |number: f64| number as f32;
    let values: Vec<f32> = match told {
        Elements::Numbers(numbers) => numbers.into_iter().map(narrow).collect(),
        Elements::Bytes(bytes) | Elements::Short(bytes) => {
            bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        }
    };
    // Checks all elements without an early exit, so that the loop vectorizes.
    if values.iter().fold(true, |all, value| all & value.is_finite()) {
        return Ok(values);
    }
    let place = values.iter().position(|value| !value.is_finite()).unwrap_or_default();
    // The value is not reported, because inputs must not leak.
    Err(format!("{name}: element {place} is no finite FP32"))
}

/// Integers; those in JSON are exact below 2^53.
fn integers(name: &str, told: Elements<'_>) -> Result<Vec<i64>, String> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let wrong = |place: usize| format!("{name}: element {place} is no whole number between -2^53 and 2^53");
    match told {
        Elements::Numbers(numbers) => {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number in range")]
            let whole = |number: f64| (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64);
            let all = numbers.into_iter().enumerate();
            all.map(|(place, number)| whole(number).ok_or_else(|| wrong(place))).collect()
        }
        Elements::Bytes(bytes) => Ok(bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()),
        Elements::Short(bytes) => {
            Ok(bytes.as_chunks().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes))).collect())
        }
    }
}

fn truths(name: &str, told: Elements<'_>) -> Result<Vec<bool>, String> {
    match told {
        Elements::Numbers(numbers) => Ok(numbers.into_iter().map(|number| number != 0.0).collect()),
        Elements::Bytes(bytes) | Elements::Short(bytes) => match bytes.iter().position(|byte| *byte > 1) {
            None => Ok(bytes.iter().map(|byte| *byte == 1).collect()),
            Some(place) => Err(format!("{name}: element {place} is neither 0 nor 1")),
        },
    }
}

fn characters(told: Elements<'_>, vocabulary: u32) -> Result<Vec<u32>, String> {
    let wrong = |place: usize| format!("{INPUT}: element {place} is no whole number from 0 to {}", vocabulary - 1);
    let checked = |(place, character): (usize, Option<u32>)| character.ok_or_else(|| wrong(place));
    let below = |integer: i64| u32::try_from(integer).ok().filter(|character| *character < vocabulary);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number in range")]
    let of_number = |number: f64| {
        let is_one = number.fract() == 0.0 && (0.0..f64::from(vocabulary)).contains(&number);
        is_one.then_some(number as u32)
    };
    let numbers: Vec<Option<u32>> = match told {
        Elements::Numbers(numbers) => numbers.into_iter().map(of_number).collect(),
        Elements::Bytes(_) | Elements::Short(_) => integers(INPUT, told)?.into_iter().map(below).collect(),
    };
    numbers.into_iter().enumerate().map(checked).collect()
}

#[cfg(test)]
mod tests {
    use client_sdk::models::{Gru, Linear};

    use super::super::signatures::signature;
    use super::*;

    fn asked(model: &Architecture, json: &str, binary: &[u8]) -> Result<Input, String> {
        let tensors = serde_json::from_str(json).map_err(|error| error.to_string())?;
        input(model, &signature(model)?, tensors, binary).map(|asked| asked.input)
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
            (r#""data":[1,2,3,"a"]"#, &[], "element 3 is no number"),
            (r#""data":5"#, &[], "an array of numbers"),
            (r#""data":[1,2,3,null]"#, &[], "element 3 is no number"),
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
}
