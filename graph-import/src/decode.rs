//! From bytes to messages whose outer form is checked.

use prost::Message as _;

use crate::error::ImportError;
use crate::error::MAX_BYTES;
use crate::proto::{Graph, Model, OperatorSet};

/// Versions of ONNX's operators that are understood.
const OPSETS: std::ops::RangeInclusive<i64> = 7..=24;

/// A model whose graph and operators' version are present.
pub(crate) fn model(bytes: &[u8]) -> Result<(Model, Graph, i64), ImportError> {
    if bytes.len() > MAX_BYTES {
        return Err(ImportError::TooLarge(bytes.len()));
    }
    let mut model = Model::decode(bytes).map_err(|error| ImportError::Decode(error.to_string()))?;
    let Some(graph) = model.graph.take() else {
        return Err(ImportError::Decode("it has no graph".to_owned()));
    };
    if !graph.sparse.is_empty() {
        return Err(ImportError::Model("sparse initializers are not supported".to_owned()));
    }
    let opset = opset(&model.opset_import).map_err(ImportError::Model)?;
    Ok((model, graph, opset))
}

/// The version of ONNX's own operators.
pub(crate) fn opset(sets: &[OperatorSet]) -> Result<i64, String> {
    let Some(set) = sets.iter().find(|set| is_onnx(&set.domain)) else {
        return Err("the file names no version of ONNX's operators (opset_import)".to_owned());
    };
    if OPSETS.contains(&set.version) {
        Ok(set.version)
    } else {
        let (first, last) = OPSETS.into_inner();
        Err(format!("the file uses version {} of ONNX's operators; {first} to {last} are supported", set.version))
    }
}

/// Whether a domain is ONNX's own.
pub(crate) fn is_onnx(domain: &str) -> bool {
    domain.is_empty() || domain == "ai.onnx"
}
