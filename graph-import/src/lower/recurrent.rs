//! Recurrent layers.

use graph::{Direction, Operation, Recurrence, RecurrentCell};

use super::context::{Context, Result, small};
use crate::build::Id;
use crate::data::Data;

pub(super) fn recurrent(c: &mut Context<'_>) -> Result<Vec<Id>> {
    let (cell, gates) = match c.node.operator.as_str() {
        "LSTM" => (RecurrentCell::Lstm, 4),
        "GRU" => (RecurrentCell::Gru, 3),
        _ => (RecurrentCell::Rnn, 1),
    };
    let direction = match c.text("direction", "forward").as_str() {
        "forward" => Direction::Forward,
        "reverse" => Direction::Reverse,
        "bidirectional" => Direction::Both,
        other => return Err(format!("the direction `{other}` is not known")),
    };
    let directions = if direction == Direction::Both { 2 } else { 1 };
    let (mut x, w, r) = (c.input(0)?, c.input(1)?, c.input(2)?);
    if [x, w, r].iter().any(|id| c.builder.rank(*id) != 3) {
        return Err("its input and weights must have three axes".to_owned());
    }
    let hidden = c.int("hidden_size", c.builder.fixed_dim(r, 2)?);
    if hidden <= 0
        || c.builder.fixed_dim(w, 0)? != directions
        || c.builder.fixed_dim(w, 1)?.checked_div(hidden) != Some(gates)
        || c.builder.fixed_dim(w, 1)? % hidden != 0
        || c.builder.shapes(r)[0] != [directions, gates * hidden, hidden]
    {
        return Err(format!("its weights do not fit {directions} directions of {gates} gates and {hidden} states"));
    }
    check(c, cell, x)?;
    let is_batch_first = c.int("layout", 0) == 1;
    if is_batch_first {
        x = c.transposed(x, &[1, 0, 2])?;
    }
    let bias = match c.optional(3) {
        Some(bias) => bias,
        None => c.builder.constant(
            "",
            vec![directions, 2 * gates * hidden],
            Data::F32(vec![0.0; small(directions * 2 * gates * hidden, "the size of the bias")?]),
        ),
    };
    let mut inputs = vec![x, w, r, bias];
    inputs.extend(states(c, cell, x, (directions, hidden), is_batch_first)?);
    let recurrence = Recurrence { cell, hidden: small(hidden, "hidden_size")?, direction };
    let mut results = c.builder.add_all(Operation::Recurrent(recurrence), &inputs)?;
    if is_batch_first {
        for (number, result) in results.iter_mut().enumerate() {
            let order: &[u32] = if number == 0 { &[2, 0, 1, 3] } else { &[1, 0, 2] };
            *result = c.transposed(*result, order)?;
        }
    }
    Ok(results)
}

/// Rejects what a graph's recurrence does not compute.
fn check(c: &Context<'_>, cell: RecurrentCell, x: Id) -> Result<()> {
    if c.optional(7).is_some() || c.int("input_forget", 0) != 0 || c.attribute("clip").is_some() {
        return Err("peepholes, `input_forget` and `clip` are not supported".to_owned());
    }
    let usual: &[&[u8]] = match cell {
        RecurrentCell::Lstm => &[b"sigmoid", b"tanh", b"tanh"],
        RecurrentCell::Gru => &[b"sigmoid", b"tanh"],
        RecurrentCell::Rnn => &[b"tanh"],
    };
    if let Some(attribute) = c.attribute("activations")
        && attribute.strings.iter().zip(usual.iter().cycle()).any(|(given, usual)| !given.eq_ignore_ascii_case(usual))
    {
        return Err("activations other than the usual ones are not supported".to_owned());
    }
    if cell == RecurrentCell::Gru && c.int("linear_before_reset", 0) == 0 {
        return Err("a GRU without `linear_before_reset=1` is not supported; PyTorch exports it with 1".to_owned());
    }
    if let Some(lengths) = c.optional(4) {
        let axis = usize::from(c.int("layout", 0) == 1);
        let whole = c.builder.dims(x, axis);
        let is_whole = |point: usize| {
            let known = c.builder.known_at(lengths, point).map(|known| known.data);
            matches!(known, Some(Data::I64(values)) if values.iter().all(|length| *length == whole[point]))
        };
        if !(0..whole.len()).all(is_whole) {
            return Err("a length for each sequence is not supported; pad to one length".to_owned());
        }
    }
    Ok(())
}

/// Initial states, or none if they are 0.
fn states(
    c: &mut Context<'_>,
    cell: RecurrentCell,
    x: Id,
    (directions, hidden): (i64, i64),
    is_batch_first: bool,
) -> Result<Vec<Id>> {
    let mut given = vec![c.optional(5)];
    if cell == RecurrentCell::Lstm {
        given.push(c.optional(6));
    }
    let points = c.builder.points().len();
    let is_zero = |id: Id| {
        (0..points).all(|point| match c.builder.known_at(id, point).map(|known| known.data) {
            Some(Data::F32(values)) => values.iter().all(|value| *value == 0.0),
            Some(Data::I64(_) | Data::Bool(_)) | None => false,
        })
    };
    if given.iter().flatten().all(|id| is_zero(*id)) {
        return Ok(Vec::new());
    }
    let mut states = Vec::new();
    for id in given {
        states.push(match id {
            Some(id) if is_batch_first => c.transposed(id, &[1, 0, 2])?,
            Some(id) => id,
            None => {
                let zero = c.builder.scalar(0.0);
                let batch = c.builder.fit(&c.builder.dims(x, 1))?;
                let shape = vec![graph::Size::fixed(directions), batch, graph::Size::fixed(hidden)];
                c.add(Operation::Fill { shape }, &[zero])?
            }
        });
    }
    Ok(states)
}
