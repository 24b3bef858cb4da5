//! Inputs by column: a model of a table takes the cells of its columns as the task does, and gives numbers in units of the label.

use std::borrow::Cow;

use task_spec::{RawCell, TableColumn, TableSpec};

use super::flat::{Cell, Column, Flat};
use super::tensors::{InputTensor, TensorParameters};
use crate::server::graphs::ANSWER_MAX;

/// Datatypes of a column: of words, and of numbers.
const WORDS: &str = "BYTES";
const NUMBERS: [&str; 5] = ["FP32", "FP64", "INT32", "INT64", "BOOL"];

/// Whether a request names a column of the table, and not the model's own input.
pub(super) fn are_columns(table: &TableSpec, tensors: &[InputTensor<'_>], input: &str) -> bool {
    tensors.iter().any(|tensor| tensor.name != input && table.features.iter().any(|one| one.column == tensor.name))
}

/// The model's input tensor, from the columns of a request in any order.
///
/// # Errors
/// What is wrong, and what would be right.
pub(super) fn encoded(
    table: &TableSpec,
    tensors: Vec<InputTensor<'_>>,
    input: &str,
) -> Result<InputTensor<'static>, String> {
    let rows = tensors.first().and_then(|tensor| tensor.shape.first()).copied().unwrap_or_default();
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    let width = table.width();
    // Before memory is allocated for words, each of which becomes as many inputs as its column has words.
    if rows.checked_mul(width).is_none_or(|inputs| inputs > ANSWER_MAX) {
        let most = ANSWER_MAX / width.max(1);
        return Err(format!("inputs: a row has {width} inputs: ask about {most} rows at once, at most"));
    }
    let mut columns: Vec<Option<Column>> = Vec::new();
    columns.resize_with(table.features.len(), || None);
    for tensor in tensors {
        let position = table.features.iter().position(|feature| feature.column == tensor.name);
        let position = position.ok_or_else(|| no_column(table, &tensor.name))?;
        let InputTensor { name, shape, datatype, parameters, data } = tensor;
        let is_column = matches!(*shape, [count] | [count, 1] if usize::try_from(count) == Ok(rows)) && rows > 0;
        if !is_column {
            return Err(format!("{name}: its shape is {shape:?}; a column has [rows] or [rows, 1], the same for all"));
        }
        if datatype != WORDS && !NUMBERS.contains(&&*datatype) {
            return Err(format!(
                "{name}: its datatype is {datatype:?}; a column has {WORDS} or {}",
                NUMBERS.join(", ")
            ));
        }
        let data = data.filter(|_| parameters.binary_data_size.is_none());
        let data = data.ok_or_else(|| format!("{name}: the cells of a column are data in the JSON"))?;
        if columns[position].replace(data.column(&name, rows)?).is_some() {
            return Err(format!("inputs: `{name}` is there twice"));
        }
    }
    let missing = table.features.iter().zip(&columns).find(|(_, column)| column.is_none());
    if let Some((feature, _)) = missing {
        return Err(format!("inputs: there is no `{}`; {}", feature.column, takes(table)));
    }
    let mut columns: Vec<_> = columns.into_iter().flatten().collect();
    let mut values = Vec::with_capacity(rows * width);
    for row in 0..rows {
        for (feature, column) in table.features.iter().zip(&mut columns) {
            push(feature, column.cell(row), &mut values).map_err(|expected| {
                // The cell is not reported, because inputs must not leak.
                format!("{}: row {row} {expected}", feature.column)
            })?;
        }
    }
    Ok(InputTensor {
        name: Cow::Owned(input.to_owned()),
        shape: vec![rows as u64, width as u64],
        datatype: Cow::Borrowed("FP32"),
        parameters: TensorParameters::default(),
        data: Some(Flat::of_numbers(values)),
    })
}

/// Adds the inputs of a cell.
fn push(feature: &TableColumn, cell: Cell<'_>, out: &mut Vec<f64>) -> Result<(), String> {
    let value = match cell {
        Cell::Number(number) => feature.value(RawCell::Number(number)),
        Cell::Text(text) if feature.stands_for_empty(text) && feature.push_empty(out) => return Ok(()),
        Cell::Text(text) => feature.value(RawCell::Text(text)),
        Cell::Empty if feature.push_empty(out) => return Ok(()),
        Cell::Empty => return Err("is empty".to_owned()),
    };
    if value.is_none() {
        return Err(match (feature.one_of.is_empty(), feature.range()) {
            (false, _) => format!("is none of {}", feature.one_of.join(", ")),
            (true, Some((low, high))) => format!("is no number from {low} to {high}"),
            (true, None) => "is no number".to_owned(),
        });
    }
    feature.push_inputs(value, false, out);
    Ok(())
}

fn no_column(table: &TableSpec, name: &str) -> String {
    if table.label.as_ref().is_some_and(|label| label.column == name) {
        return format!("inputs: `{name}` is what this model predicts");
    }
    format!("inputs: this model has no column {name:?}; {}", takes(table))
}

fn takes(table: &TableSpec) -> String {
    let names: Vec<_> = table.features.iter().map(|feature| format!("`{}`", feature.column)).collect();
    format!("it takes {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TableSpec {
        let columns = serde_json::json!([
            { "column": "age", "low": 0, "high": 100, "missing": "median", "median": 50 },
            { "column": "ward", "one_of": ["icu", "1"], "other": true },
            { "column": "pulse" }
        ]);
        let label = serde_json::json!({ "column": "sick", "one_of": ["no", "yes"] });
        serde_json::from_value(serde_json::json!({ "features": columns, "label": label })).unwrap()
    }

    fn rows(json: &str) -> Result<Vec<f64>, String> {
        let tensors: Vec<InputTensor<'_>> = serde_json::from_str(json).map_err(|error| error.to_string())?;
        assert!(are_columns(&table(), &tensors, "input"));
        let tensor = encoded(&table(), tensors, "input")?;
        let shape = tensor.shape.clone();
        tensor.data.unwrap().of_shape("input", super::super::signatures::Datatype::Fp32, &shape)
    }

    fn with(age: &str, ward: &str, pulse: &str) -> String {
        format!(
            r#"[{{"name":"pulse","shape":[2,1],"datatype":"FP64","data":{pulse}}},
                {{"name":"age","shape":[2],"datatype":"INT64","data":{age}}},
                {{"name":"ward","shape":[2],"datatype":"BYTES","data":{ward}}}]"#
        )
    }

    #[test]
    fn cells_are_scaled_and_words_become_inputs() {
        let expected = vec![0.25, 1.0, 0.0, 0.0, 70.0, 0.5, 0.0, 0.0, 1.0, 80.5];
        assert_eq!(rows(&with(r#"[25, "NA"]"#, r#"["icu", "burns"]"#, "[[70], [80.5]]")), Ok(expected.clone()));
        let expected = vec![1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0];
        assert_eq!(rows(&with(r#"["100", 0]"#, r#"[1.0, "icu"]"#, "[false, true]")), Ok(expected));
    }

    #[test]
    fn wrong_columns_are_named_without_their_cells() {
        let good = (r#"[25, 30]"#, r#"["icu", "1"]"#, "[1, 2]");
        for (json, words) in [
            (with("[25, 101]", good.1, good.2), "age: row 1 is no number from 0 to 100"),
            (with(good.0, r#"["icu", null]"#, good.2), "ward: row 1 is empty"),
            (with(good.0, good.1, r#"[1, "fast"]"#), "pulse: row 1 is no number"),
            (with("[25]", good.1, good.2), "age: data is one array of 2 cells"),
            (with(good.0, good.1, "[[1, 2]]"), "pulse: data is one array of 2 cells"),
            (with(good.0, good.1, good.2).replace("\"pulse\"", "\"sick\""), "`sick` is what this model predicts"),
            (
                with(good.0, good.1, good.2).replace("\"pulse\"", "\"temp\""),
                "no column \"temp\"; it takes `age`, `ward`, `pulse`",
            ),
            (with(good.0, good.1, good.2).replace("\"pulse\"", "\"age\""), "`age` is there twice"),
            (with(good.0, good.1, good.2).replace("[2,1]", "[3]"), "pulse: data is one array of 3 cells"),
            (
                with(good.0, good.1, good.2).replace("[2],\"datatype\":\"BYTES\"", "[3],\"datatype\":\"BYTES\""),
                "the same for all",
            ),
            (with(good.0, good.1, good.2).replace("FP64", "UINT8"), "its datatype is \"UINT8\""),
        ] {
            let said = rows(&json).unwrap_err();
            assert!(said.contains(words), "{words}: {said}");
        }
        let many = r#"[{"name":"age","shape":[838861],"datatype":"FP32","data":[1]}]"#;
        assert!(rows(many).unwrap_err().contains("a row has 5 inputs: ask about 838860 rows at once"));
        let one = r#"[{"name":"age","shape":[1],"datatype":"FP32","data":[1]}]"#;
        assert!(rows(one).unwrap_err().contains("there is no `ward`"));
    }
}
