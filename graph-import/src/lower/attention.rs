//! Scaled dot-product attention (version 23).

use graph::{Activation, Arithmetic, Element, Operation};

use super::context::{Context, Result};
use crate::build::Id;

pub(super) fn attention(c: &mut Context<'_>) -> Result<Id> {
    if c.optional(4).is_some() || c.optional(5).is_some() || c.optional(6).is_some() {
        return Err("caches of keys and values are for inference; export without them".to_owned());
    }
    if c.node.outputs.iter().skip(1).any(|name| !name.is_empty()) {
        return Err("only its first result is supported".to_owned());
    }
    let is_flat = c.builder.rank(c.input(0)?) == 3;
    let (query, key, value) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let query = heads(c, query, "q_num_heads")?;
    let key = heads(c, key, "kv_num_heads")?;
    let value = heads(c, value, "kv_num_heads")?;
    let count = c.builder.fixed_dim(query, 1)?;
    let (key, value) = (repeated(c, key, count)?, repeated(c, value, count)?);
    let size = c.builder.fixed_dim(query, 3)?;
    #[expect(clippy::cast_precision_loss, reason = "few features")]
    let scale = c.float("scale", (size.max(1) as f32).sqrt().recip());
    let key = c.transposed(key, &[0, 1, 3, 2])?;
    let query = c.scale(query, scale)?;
    let mut scores = c.add(Operation::MatMul, &[query, key])?;
    let cap = c.float("softcap", 0.0);
    if cap != 0.0 {
        let inner = c.scale(scores, cap.recip())?;
        let inner = c.activate(Activation::Tanh, inner)?;
        scores = c.scale(inner, cap)?;
    }
    scores = masked(c, scores)?;
    let weights = c.add(Operation::Softmax { axis: 3 }, &[scores])?;
    let y = c.add(Operation::MatMul, &[weights, value])?;
    if !is_flat {
        return Ok(y);
    }
    let y = c.transposed(y, &[0, 2, 1, 3])?;
    let shapes: Vec<Vec<i64>> =
        c.builder.shapes(y).iter().map(|shape| vec![shape[0], shape[1], shape[2] * shape[3]]).collect();
    c.reshaped(y, &shapes)
}

/// `[batch, heads, length, features]`.
fn heads(c: &mut Context<'_>, x: Id, attribute: &str) -> Result<Id> {
    if c.builder.rank(x) == 4 {
        return Ok(x);
    }
    let count = c.int(attribute, 0);
    if c.builder.rank(x) != 3 || count <= 0 || c.builder.fixed_dim(x, 2)? % count != 0 {
        return Err(format!("its input needs four axes, or three with a divisor in `{attribute}`"));
    }
    let shapes: Vec<Vec<i64>> =
        c.builder.shapes(x).iter().map(|shape| vec![shape[0], shape[1], count, shape[2] / count]).collect();
    let y = c.reshaped(x, &shapes)?;
    c.transposed(y, &[0, 2, 1, 3])
}

/// Each head of keys and values for several of queries.
fn repeated(c: &mut Context<'_>, x: Id, count: i64) -> Result<Id> {
    let own = c.builder.fixed_dim(x, 1)?;
    if own == count {
        return Ok(x);
    }
    if own <= 0 || count % own != 0 {
        return Err(format!("{count} heads of queries are no multiple of {own} of keys"));
    }
    let times = count / own;
    let shapes = c.builder.shapes(x).to_vec();
    let wide: Vec<Vec<i64>> = shapes.iter().map(|s| vec![s[0], s[1], 1, s[2], s[3]]).collect();
    let y = c.reshaped(x, &wide)?;
    let mut to = c.sizes(y)?;
    to[2] = graph::Size::fixed(times);
    let y = c.add(Operation::Expand { to }, &[y])?;
    c.reshaped(y, &shapes.iter().map(|s| vec![s[0], count, s[2], s[3]]).collect::<Vec<_>>())
}

fn masked(c: &mut Context<'_>, scores: Id) -> Result<Id> {
    let mut scores = scores;
    if let Some(mask) = c.optional(3) {
        scores = if c.builder.element(mask) == Element::Bool {
            let low = c.builder.scalar(f32::NEG_INFINITY);
            c.add(Operation::Where, &[mask, scores, low])?
        } else {
            c.arithmetic(Arithmetic::Add, scores, mask)?
        };
    }
    if c.int("is_causal", 0) == 0 {
        return Ok(scores);
    }
    let yes = c.builder.constant("", Vec::new(), crate::data::Data::Bool(vec![true]));
    let shape = c.sizes(scores)?[2..].to_vec();
    let all = c.add(Operation::Fill { shape }, &[yes])?;
    let past = c.add(Operation::Triangle { upper: false, k: 0 }, &[all])?;
    let low = c.builder.scalar(f32::NEG_INFINITY);
    c.add(Operation::Where, &[past, scores, low])
}
