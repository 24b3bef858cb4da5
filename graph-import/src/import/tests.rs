//! Hostile files: each is rejected with the name of what is wrong.

use prost::Message as _;

use super::import;
use crate::error::{ImportError, Warning};
use crate::options::{BatchNorm, Options};
use crate::proto::{
    Attribute, Dimension, Function, Graph, Model, Node, OperatorSet, Shape, Size, Tensor, TensorType, ValueInfo,
    ValueType, element,
};

fn value(name: &str, sizes: &[i64]) -> ValueInfo {
    let batch = Dimension { size: Some(Size::Named("batch".to_owned())) };
    let fixed = |size: &i64| Dimension { size: Some(Size::Fixed(*size)) };
    let dims = std::iter::once(batch).chain(sizes.iter().map(fixed)).collect();
    let tensor = TensorType { element: element::FLOAT, shape: Some(Shape { dims }) };
    ValueInfo { name: name.to_owned(), kind: Some(ValueType { tensor: Some(tensor) }) }
}

fn floats(name: &str, dims: &[i64], count: usize) -> Tensor {
    let floats = (0_u16..).take(count).map(f32::from).collect();
    Tensor { name: name.to_owned(), dims: dims.to_vec(), element: element::FLOAT, floats, ..Tensor::default() }
}

fn integers(name: &str, dims: &[i64], values: &[i64]) -> Tensor {
    let int64s = values.to_vec();
    Tensor { name: name.to_owned(), dims: dims.to_vec(), element: element::INT64, int64s, ..Tensor::default() }
}

fn node(operator: &str, inputs: &[&str], attributes: Vec<Attribute>) -> Node {
    Node {
        inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
        outputs: vec!["y".to_owned()],
        name: "the node".to_owned(),
        operator: operator.to_owned(),
        attributes,
        domain: String::new(),
    }
}

fn text(name: &str, string: &str) -> Attribute {
    Attribute { name: name.to_owned(), string: string.as_bytes().to_vec(), ..Attribute::default() }
}

fn integer(name: &str, integer: i64) -> Attribute {
    Attribute { name: name.to_owned(), integer, ..Attribute::default() }
}

fn list(name: &str, integers: Vec<i64>) -> Attribute {
    Attribute { name: name.to_owned(), integers, ..Attribute::default() }
}

fn onnx(version: i64) -> OperatorSet {
    OperatorSet { domain: String::new(), version }
}

/// A file with an input `x` and an output `y`.
fn file(sizes: &[i64], initializers: Vec<Tensor>, nodes: Vec<Node>) -> Model {
    let (inputs, outputs) = (vec![value("x", sizes)], vec![value("y", &[])]);
    let graph = Graph { nodes, initializers, inputs, outputs, ..Graph::default() };
    Model { ir_version: 8, graph: Some(graph), opset_import: vec![onnx(21)], ..Model::default() }
}

fn rejected(file: &Model) -> String {
    import(&file.encode_to_vec(), &Options::default()).unwrap_err().to_string()
}

#[test]
fn empty_kernel_with_automatic_pads_is_rejected() {
    for operator in ["Conv", "ConvTranspose"] {
        let conv = node(operator, &["x", "w"], vec![text("auto_pad", "SAME_UPPER")]);
        let said = rejected(&file(&[1, 4], vec![floats("w", &[1, 1, 0], 0)], vec![conv]));
        assert!(said.contains("`the node`") && said.contains("`kernel_shape` [0] contains 0"), "{said}");
    }
    let attributes = vec![list("kernel_shape", vec![0]), text("auto_pad", "SAME_LOWER")];
    assert!(rejected(&file(&[1, 4], Vec::new(), vec![node("MaxPool", &["x"], attributes)])).contains("contains 0"));
}

#[test]
fn shape_of_a_transposed_convolution_is_bounded() {
    let attributes = vec![list("output_shape", vec![i64::MIN])];
    let conv = node("ConvTranspose", &["x", "w"], attributes);
    let said = rejected(&file(&[1, 4], vec![floats("w", &[1, 1, 2], 2)], vec![conv]));
    assert!(said.contains("`output_shape` -9223372036854775808 is out of range"), "{said}");
}

#[test]
fn large_block_of_pixels_is_rejected() {
    for operator in ["DepthToSpace", "SpaceToDepth"] {
        for block in [0, i64::from(i32::MAX), 1 << 32, i64::MAX] {
            let said = rejected(&file(
                &[4, 2, 2],
                Vec::new(),
                vec![node(operator, &["x"], vec![integer("blocksize", block)])],
            ));
            assert!(said.contains("a block size from 1 to 16384"), "{operator} {block}: {said}");
        }
    }
}

#[test]
fn range_over_all_integers_is_rejected() {
    for (start, end, step) in
        [(i64::MIN, i64::MAX, 1), (i64::MAX, i64::MIN, -1), (i64::MIN, i64::MAX, i64::from(i32::MAX))]
    {
        let bounds =
            [("start", start), ("end", end), ("step", step)].map(|(name, value)| integers(name, &[], &[value]));
        let range = node("Range", &["start", "end", "step"], Vec::new());
        let said = rejected(&file(&[4], bounds.to_vec(), vec![range]));
        assert!(said.contains("`the node`") && (said.contains("too many") || said.contains("more than")), "{said}");
    }
}

#[test]
fn normalization_of_groups_by_a_number_is_rejected() {
    let scales = vec![floats("scale", &[], 1), floats("bias", &[], 1)];
    let group = node("GroupNormalization", &["x", "scale", "bias"], vec![integer("num_groups", 2)]);
    let said = rejected(&file(&[4, 3], scales, vec![group]));
    assert!(said.contains("it needs an axis 0, but has 0 axes"), "{said}");
}

#[test]
fn function_of_unknown_operators_is_rejected() {
    let function = |opset_import| Function {
        name: "Twice".to_owned(),
        domain: "own".to_owned(),
        inputs: vec!["a".to_owned()],
        outputs: vec!["b".to_owned()],
        nodes: vec![Node { outputs: vec!["b".to_owned()], ..node("Add", &["a", "a"], Vec::new()) }],
        opset_import,
        ..Function::default()
    };
    let scaled = |function| {
        let call =
            Node { domain: "own".to_owned(), outputs: vec!["z".to_owned()], ..node("Twice", &["x"], Vec::new()) };
        let mul = node("Mul", &["z", "w"], Vec::new());
        Model { functions: vec![function], ..file(&[4], vec![floats("w", &[4], 4)], vec![call, mul]) }
    };
    let of_newer = rejected(&scaled(function(vec![onnx(99)])));
    assert!(of_newer.contains("the function `Twice`: the file uses version 99"), "{of_newer}");
    for set in [vec![onnx(18)], Vec::new(), vec![OperatorSet { domain: "own".to_owned(), version: 1 }]] {
        let imported = import(&scaled(function(set)).encode_to_vec(), &Options::default()).unwrap();
        assert_eq!(imported.graph.nodes.len(), 2);
    }
}

#[test]
fn sizes_beside_an_empty_axis_are_bounded() {
    for dims in [&[0, i64::MAX][..], &[i64::MAX, 0], &[1 << 27, 0, 1 << 27], &[1; 40]] {
        let error = import(&file(&[4], vec![floats("w", dims, 0)], Vec::new()).encode_to_vec(), &Options::default());
        let Err(ImportError::Initializer { name, why }) = error else { panic!("{dims:?}: {error:?}") };
        assert!(name == "w" && (why.contains("more than") || why.contains("at most 32")), "{dims:?}: {why}");
    }
    // The sizes of the input alone have too many elements.
    let large = file(&[1 << 27, 1 << 27, 1 << 27], Vec::new(), vec![node("Flatten", &["x"], Vec::new())]);
    assert!(rejected(&large).contains("input `x`: shape"), "{}", rejected(&large));
}

#[test]
fn attributes_of_many_numbers_are_rejected() {
    let axes = integers("axes", &[4096], &(0..4096).collect::<Vec<_>>());
    let said = rejected(&file(&[4], vec![axes], vec![node("Unsqueeze", &["x", "axes"], Vec::new())]));
    assert!(said.contains("it has 4098 axes; at most 32 are supported"), "{said}");
    let shape = integers("shape", &[5000], &[1; 5000]);
    let said = rejected(&file(&[4], vec![shape], vec![node("Expand", &["x", "shape"], Vec::new())]));
    assert!(said.contains("it has 5000 sizes or positions; at most 4096 are supported"), "{said}");
    let equation = "a".repeat(1 << 20);
    let einsum = node("Einsum", &["x", "x"], vec![text("equation", &format!("{equation},{equation}->{equation}"))]);
    assert!(rejected(&file(&[4], Vec::new(), vec![einsum])).contains("is not supported"));
}

#[test]
fn parts_without_positions_are_left_out_of_a_concatenation() {
    let slice =
        Node { outputs: vec!["none".to_owned()], ..node("Slice", &["x", "start", "start", "axis"], Vec::new()) };
    let joined = Node { outputs: vec!["both".to_owned()], ..node("Concat", &["none", "x"], vec![integer("axis", 1)]) };
    let initializers = vec![integers("start", &[1], &[2]), integers("axis", &[1], &[1]), floats("w", &[4], 4)];
    let mul = node("Mul", &["both", "w"], Vec::new());
    let imported =
        import(&file(&[4], initializers, vec![slice, joined, mul]).encode_to_vec(), &Options::default()).unwrap();
    assert_eq!(imported.graph.nodes.len(), 1, "{:?}", imported.graph.nodes);
}

#[test]
fn output_with_the_batch_elsewhere_is_rejected_with_its_axis() {
    let mul = Node { outputs: vec!["z".to_owned()], ..node("Mul", &["x", "w"], Vec::new()) };
    let turned = node("Transpose", &["z"], vec![list("perm", vec![1, 0])]);
    let said = rejected(&file(&[4], vec![floats("w", &[4], 4)], vec![mul, turned]));
    assert!(said.contains("output `y`: its axis 1 is the batch; the first axis must be"), "{said}");
}

#[test]
fn input_that_is_a_single_number_is_replaced_by_its_value() {
    let mul = Node { outputs: vec!["z".to_owned()], ..node("Mul", &["x", "w"], Vec::new()) };
    let scaled = node("Mul", &["z", "rate"], Vec::new());
    let mut file = file(&[4], vec![floats("w", &[4], 4)], vec![mul, scaled]);
    let graph = file.graph.as_mut().unwrap();
    let tensor = TensorType { element: element::FLOAT, shape: Some(Shape { dims: Vec::new() }) };
    graph.inputs.push(ValueInfo { name: "rate".to_owned(), kind: Some(ValueType { tensor: Some(tensor) }) });
    let said = rejected(&file);
    assert!(said.contains("input `rate`: it is a single number") && said.contains("`value`"), "{said}");
    let options = Options { values: [("rate".to_owned(), 0.5)].into(), ..Options::default() };
    let imported = import(&file.encode_to_vec(), &options).unwrap();
    assert_eq!(imported.graph.inputs.len(), 1);
}

#[test]
fn weights_in_constant_nodes_are_parameters_if_there_are_no_initializers() {
    let constant = |name: &str, tensor: Tensor| {
        let value = Attribute { name: "value".to_owned(), tensor: Some(tensor), ..Attribute::default() };
        Node { outputs: vec![name.to_owned()], ..node("Constant", &[], vec![value]) }
    };
    let weight = constant("linear_0.w_0", floats("", &[4], 4));
    let half = constant("/half", floats("", &[4], 4));
    let nodes = vec![
        weight,
        half,
        Node { outputs: vec!["z".to_owned()], ..node("Mul", &["x", "linear_0.w_0"], Vec::new()) },
        node("Add", &["z", "/half"], Vec::new()),
    ];
    let read = |initializers| import(&file(&[4], initializers, nodes.clone()).encode_to_vec(), &Options::default());
    let imported = read(Vec::new()).unwrap();
    let names: Vec<_> = imported.parameters.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["linear_0.w_0"]);
    // Beside initializers, a constant is one.
    let said = read(vec![floats("unused", &[4], 4)]).unwrap_err().to_string();
    assert!(said.contains("depend on no float initializer"), "{said}");
}

/// A file with a batch normalization of this momentum, and the names of its statistics.
fn normalized(momentum: f32, names: [&str; 2]) -> Model {
    let mut tensors: Vec<Tensor> = ["scale", "bias"].map(|name| floats(name, &[3], 3)).into();
    tensors.extend(names.map(|name| floats(name, &[3], 3)));
    tensors.push(integers("num_batches_tracked", &[], &[7]));
    let attribute = Attribute { name: "momentum".to_owned(), float: momentum, ..Attribute::default() };
    let mode = integer("training_mode", 1);
    let inputs = ["x", "scale", "bias", names[0], names[1]];
    file(&[3, 4], tensors, vec![node("BatchNormalization", &inputs, vec![attribute, mode])])
}

fn by_batch() -> Options {
    Options { batch_norm: BatchNorm::Batch, ..Options::default() }
}

#[test]
fn running_statistics_become_parameters() {
    for names in [["bn.running_mean", "bn.running_var"], ["mean", "variance"]] {
        let onnx = normalized(0.9, names).encode_to_vec();
        let frozen = import(&onnx, &Options::default()).unwrap();
        // Both have the same elements.
        assert_eq!((frozen.graph.version, frozen.graph.constants.len()), (1, 1));
        assert!(frozen.graph.batch_statistics().is_empty());
        assert!(matches!(frozen.warnings[0], Warning::FrozenBatchNorm(_)));
        let found = import(&onnx, &by_batch()).unwrap();
        assert!(!found.warnings.iter().any(|warning| matches!(warning, Warning::FrozenBatchNorm(_))));
        let graph = &found.graph;
        assert_eq!((graph.version, graph.constants.len()), (2, 0), "{graph:?}");
        let layer = graph.batch_statistics()[0];
        assert_eq!([layer.mean, layer.variance].map(|position| graph.parameters[position].name.as_str()), names);
        // The nearest decimal number, not 1 - 0.9 in 32 bits.
        assert!((layer.momentum - 0.1).abs() < f32::EPSILON / 16.0);
        let file = crate::export(graph, &[-1.0; 12], &[]).unwrap();
        let again = import(&file, &by_batch()).unwrap();
        assert_eq!(&again.graph, graph);
        let values = |name: &str| &again.parameters.iter().find(|tensor| tensor.name == name).unwrap().values;
        assert_eq!((values(names[0]), values(names[1])), (&vec![-1.0; 3], &vec![0.0; 3]), "a variance is at least 0");
    }
}

#[test]
fn statistics_that_stay_constant_freeze_their_layer() {
    let onnx = normalized(0.9, ["mean", "variance"]).encode_to_vec();
    let found = import(&onnx, &Options { constants: vec!["mean".into()], ..by_batch() }).unwrap();
    assert!(found.graph.batch_statistics().is_empty() && found.graph.version == 1);
    assert!(matches!(found.warnings[0], Warning::FrozenBatchNorm(_)), "{:?}", found.warnings);
    let said = import(&normalized(1.0, ["mean", "variance"]).encode_to_vec(), &by_batch()).unwrap_err().to_string();
    assert!(said.contains("its momentum is 1; from 0 to below 1 is right"), "{said}");
}

#[test]
fn statistics_that_nothing_normalizes_by_stay_constants() {
    let shift = node("Add", &["x", "other.running_mean"], Vec::new());
    let mut scale = node("Mul", &["y", "w"], Vec::new());
    scale.outputs = vec!["z".to_owned()];
    let mut model = file(&[3], vec![floats("other.running_mean", &[3], 3), floats("w", &[3], 3)], vec![shift, scale]);
    model.graph.as_mut().unwrap().outputs[0].name = "z".to_owned();
    let found = import(&model.encode_to_vec(), &by_batch()).unwrap();
    let names: Vec<_> = found.parameters.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!((names, found.graph.constants.len()), (vec!["w"], 1));
}
