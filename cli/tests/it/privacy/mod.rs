//! `privacy plan`, and its promises kept by a federation.

mod audit;
mod demo;
mod ledger;
mod plan;

use serde_json::Value;

fn number(data: &Value, pointer: &str) -> f64 {
    data.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {data}"))
}

/// Checks that every element is closed in its order, every attribute has its quotes, and every escape is valid.
fn well_formed(xml: &str) -> Result<(), String> {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some((text, tag)) = rest.split_once('<') {
        if text.contains(['>', '&']) {
            return Err(format!("stray character in {text:?}"));
        }
        let (tag, after) = tag.split_once('>').ok_or("a tag without an end")?;
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes something else"));
            }
        } else {
            let empty = tag.ends_with('/');
            let (name, attributes) = tag.trim_end_matches('/').split_once(' ').unwrap_or((tag, ""));
            let parts: Vec<&str> = attributes.split('"').collect();
            if parts.len().is_multiple_of(2)
                || parts.iter().step_by(2).any(|key| !key.is_empty() && !key.ends_with('='))
            {
                return Err(format!("attributes of <{tag}>"));
            }
            if !empty {
                open.push(name);
            }
        }
        rest = after;
    }
    if open.is_empty() && rest.trim().is_empty() { Ok(()) } else { Err(format!("{open:?} is open before {rest:?}")) }
}
