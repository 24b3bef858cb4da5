//! From the bytes of a file to a graph.

mod file;
mod lengths;
mod run;
mod sequences;
mod symbols;
#[cfg(test)]
mod tests;

pub use self::file::{Imported, Tensor};
use self::run::Run;
use crate::decode;
use crate::error::ImportError;
use crate::options::Options;
use crate::points::Points;

/// Lengths of sequences that are tried in turn: tables of positions bound them above, convolutions below.
const LENGTHS: [[u32; 3]; 5] = [[7, 11, 13], [3, 4, 5], [67, 71, 73], [512, 1024, 1536], [16000, 24000, 32000]];

/// Reads an ONNX file.
///
/// # Errors
///
/// If the bytes are no ONNX model, or if it cannot be trained as it is: the error names the initializer, input, output
/// or node, and the reason.
pub fn import(bytes: &[u8], options: &Options) -> Result<Imported, ImportError> {
    let (model, mut file, opset) = decode::model(bytes)?;
    let mut warnings = Vec::new();
    let mut stored = Vec::new();
    file::weights_to_initializers(&mut file);
    for tensor in std::mem::take(&mut file.initializers) {
        stored.push(file::read(tensor, &mut warnings)?);
    }
    sequences::unroll(&mut file, &stored);
    let sizes = symbols::resolve(&file.inputs, &stored, options, &mut warnings)?;
    let tries: &[Option<[u32; 3]>] = if sizes.has_length { &LENGTHS.map(Some) } else { &[None] };
    let mut first_error = None;
    for lengths in tries {
        match Run::new(&model, &file, options, Points::new(*lengths)).run(opset, &stored, &sizes.inputs) {
            Ok(mut imported) => {
                warnings.append(&mut imported.warnings);
                // Lengths are found by inference at many of them.
                if imported.graph.nodes.len() > graph::MAX_NODES {
                    let (count, most) = (imported.graph.nodes.len(), graph::MAX_NODES);
                    return Err(ImportError::Model(format!("the graph has {count} nodes; at most {most} are allowed")));
                }
                imported.graph.lengths = lengths.map(|[tried, ..]| lengths::computed(&imported.graph, tried));
                imported.graph.check().map_err(|error| ImportError::Model(error.to_string()))?;
                return Ok(Imported { warnings, ..imported });
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| ImportError::Model("the file has no inputs".to_owned())))
}
