//! ONNX's operators, expressed in those of a graph.

mod attention;
mod attributes;
mod context;
mod conv;
mod elementwise;
mod indexing;
mod matrix;
mod moves;
mod norm;
mod recurrent;
mod reduce;
mod resize;
mod sources;

pub(crate) use self::context::Context;
use self::context::Result;
use crate::build::Id;

/// Adds what a node computes; gives its results.
pub(crate) fn lower(c: &mut Context<'_>) -> Result<Vec<Id>> {
    if let Some(one) = elementwise::lower(c)? {
        return Ok(vec![one]);
    }
    let one = match c.node.operator.as_str() {
        "MatMul" => matrix::matmul(c),
        "Gemm" => matrix::gemm(c),
        "Einsum" => matrix::einsum(c),
        "Conv" => conv::conv(c),
        "ConvTranspose" => conv::conv_transpose(c),
        "MaxPool" | "AveragePool" => conv::pool(c),
        "GlobalAveragePool" | "GlobalMaxPool" => reduce::global(c),
        "ReduceMean" | "ReduceSum" | "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceL1" | "ReduceL2"
        | "ReduceSumSquare" | "ReduceLogSum" | "ReduceLogSumExp" => reduce::reduce(c),
        "ArgMax" | "ArgMin" => reduce::arg(c),
        "Softmax" | "LogSoftmax" => norm::softmax(c),
        "LayerNormalization" => norm::layer(c),
        "RMSNormalization" => norm::rms(c),
        "InstanceNormalization" => norm::instance(c),
        "GroupNormalization" => norm::group(c),
        "BatchNormalization" => return norm::batch(c),
        "Dropout" => norm::dropout(c),
        "Reshape" => moves::reshape(c),
        "Flatten" => moves::flatten(c),
        "Squeeze" => moves::squeeze(c),
        "Unsqueeze" => moves::unsqueeze(c),
        "Transpose" => moves::transpose(c),
        "Expand" => moves::expand(c),
        "Tile" => moves::tile(c),
        "Concat" => moves::concat(c),
        "Split" => return moves::split(c),
        "Slice" => moves::slice(c),
        "Pad" => moves::pad(c),
        "DepthToSpace" | "SpaceToDepth" => moves::depth_space(c),
        "Gather" => indexing::gather(c),
        "GatherElements" => indexing::gather_elements(c),
        "GatherND" => indexing::gather_nd(c),
        "OneHot" => indexing::one_hot(c),
        "Trilu" => indexing::triangle(c),
        "CumSum" => indexing::cumulate(c),
        "Resize" | "Upsample" => resize::resize(c),
        "LSTM" | "GRU" | "RNN" => return recurrent::recurrent(c),
        "Attention" => attention::attention(c),
        "Constant" => sources::constant(c),
        "ConstantOfShape" => sources::fill(c),
        "Shape" => sources::shape(c),
        "Size" => sources::size(c),
        "Range" => sources::range(c),
        operator => Err(why_unknown(operator)),
    }?;
    Ok(vec![one])
}

/// Why operators of another domain than ONNX's are rejected.
pub(crate) fn why_foreign(domain: &str) -> String {
    match domain {
        "com.microsoft" => {
            "operators of onnxruntime have no gradient here; export without its optimizations".to_owned()
        }
        _ => format!("operators of the domain `{domain}` are not known, and the file does not define this one"),
    }
}

fn why_unknown(operator: &str) -> String {
    let why = match operator {
        "DynamicQuantizeLinear"
        | "QuantizeLinear"
        | "DequantizeLinear"
        | "MatMulInteger"
        | "ConvInteger"
        | "QLinearMatMul"
        | "QLinearConv" => "a quantized model is for inference only; import the one in floats",
        "Loop" | "Scan" => "loops cannot be trained; export the model with a fixed number of steps",
        "SequenceConstruct" | "SequenceAt" | "SequenceEmpty" | "SequenceInsert" | "SplitToSequence"
        | "ConcatFromSequence" | "Optional" | "OptionalGetElement" | "OptionalHasElement" => {
            "sequences and optional values are not supported; use tensors"
        }
        "RandomNormal" | "RandomNormalLike" | "RandomUniform" | "RandomUniformLike" | "Bernoulli" | "Multinomial" => {
            "random numbers in the model are not supported, except dropout"
        }
        "NonZero" | "Unique" | "Compress" | "NonMaxSuppression" => {
            "the shape of its result depends on the examples' values"
        }
        "StringNormalizer" | "StringConcat" | "StringSplit" | "RegexFullMatch" | "TfIdfVectorizer" => {
            "strings cannot be trained on; give numbers as inputs"
        }
        _ => "the operator is not supported in training",
    };
    why.to_owned()
}
