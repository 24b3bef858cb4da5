//! Untrusted ONNX files on the operator's machine. An accepted file becomes a graph that decodes, with the values of all
//! parameters.

use graph::{Graph, decode, encode};
use graph_import::{Imported, Options, import};

/// Networks exported from PyTorch.
pub(crate) const FILES: [&[u8]; 4] = [
    include_bytes!("../../../client-sdk/src/train/graph/imported/residual.onnx"),
    include_bytes!("../../../client-sdk/src/train/graph/imported/recurrent.onnx"),
    include_bytes!("../../../client-sdk/src/train/graph/imported/table.onnx"),
    include_bytes!("../../../client-sdk/src/train/graph/imported/transformer.onnx"),
];

/// Options under which all of [`FILES`] are accepted.
fn options() -> Options {
    Options { tied: vec!["embed.weight".to_owned()], ..Options::default() }
}

/// The graph of one of [`FILES`].
pub(crate) fn imported(file: &[u8]) -> Graph {
    import(file, &options()).expect("an exported network is accepted").graph
}

pub fn run(data: &[u8]) {
    let Ok(Imported { graph, parameters, warnings }) = import(data, &options()) else { return };
    warnings.iter().for_each(|warning| assert!(!warning.to_string().is_empty()));
    let written = encode(&graph).expect("an imported graph has finite attributes");
    assert_eq!(decode(&written).as_ref(), Ok(&graph), "an imported graph is one that a task may hold");
    assert_eq!(graph.parameters.len(), parameters.len());
    for (parameter, tensor) in graph.parameters.iter().zip(&parameters) {
        assert!(parameter.name == tensor.name && parameter.shape == tensor.shape);
        let elements: usize = tensor.shape.iter().map(|&size| size as usize).product();
        assert_eq!(tensor.values.len(), elements);
    }
}

/// The ONNX files that fuzzing starts from.
pub fn seeds() -> Vec<Vec<u8>> {
    FILES.iter().map(|file| file.to_vec()).collect()
}
