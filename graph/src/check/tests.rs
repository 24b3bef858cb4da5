//! Graphs that break a rule or limit.

use serde_json::Value;

use crate::{
    BatchStatistics, Constant, Graph, GraphError, GraphModel, Node, Operation, Padding, Point, ValueId, Values, decode,
    infer,
};

/// A graph of one product, with `nodes` after it.
fn graph(nodes: &str) -> String {
    format!(
        r#"{{"version":1,"inputs":[{{"name":"x","element":"f32","shape":[{{"factor":1,"batch":1}},{{"offset":2}}]}}],
        "parameters":[{{"name":"w","shape":[2,3]}}],"nodes":[{{"do":"mat_mul","of":[0,1]}}{nodes}],
        "outputs":[{{"name":"y","value":2}}]}}"#
    )
}

fn rejected(json: &str) -> String {
    decode(json.as_bytes()).map(|_| ()).map_err(|error: GraphError| error.to_string()).unwrap_err()
}

#[test]
fn graph_within_limits_is_accepted() {
    assert_eq!(decode(graph("").as_bytes()).unwrap().nodes.len(), 1);
}

#[test]
fn hostile_graphs_are_rejected_by_name() {
    for (node, why) in [
        (r#",{"do":"mat_mul","of":[0,9]}"#, "reads value 9, which is not computed before it"),
        (r#",{"do":"mat_mul","of":[0,3]}"#, "reads value 3, which is not computed before it"),
        (r#",{"do":{"expand":{"to":[{"offset":1099511627776},{"offset":3}]}},"of":[2]}"#, "a size is not between 1"),
        (r#",{"do":{"reshape":{"to":[null,null]}},"of":[2]}"#, "leaves two sizes open"),
        (r#",{"do":{"slice":{"axis":1,"start":{},"end":{"offset":2},"step":0}},"of":[2]}"#, "selects nothing"),
        (r#",{"do":{"softmax":{"axis":2}},"of":[2]}"#, "axis 2 is not below the rank 2"),
        (r#",{"do":{"layer_norm":{"axis":1,"epsilon":0.0}},"of":[2,1]}"#, "epsilon is 0"),
        (r#",{"do":{"reshape":{"to":[{"factor":1,"length":1},null]}},"of":[2]}"#, "states no lengths"),
        (r#",{"do":{"dropout":{"rate":1.0}},"of":[2]}"#, "rate is 1"),
        (r#",{"do":"loop","of":[2]}"#, "unknown variant"),
    ] {
        let said = rejected(&graph(node));
        assert!(said.contains(why), "{node}: {said}");
    }
}

#[test]
fn many_large_values_are_rejected_before_allocation() {
    let wide = r#",{"do":{"expand":{"to":[{"offset":100000000},{"factor":1,"batch":1},{"offset":1}]}},"of":[1]}"#;
    let said = rejected(&graph(&wide.repeat(4)));
    assert!(said.contains("elements"), "{said}");
    let many = graph(&r#",{"do":{"activation":"relu"},"of":[2]}"#.repeat(14_000));
    assert!(rejected(&many).contains("more than 524288 bytes"));
}

#[test]
fn output_that_grows_with_the_batch_is_rejected() {
    let nodes = r#",{"do":{"gemm":{"transpose_a":false,"transpose_b":true,"alpha":1.0,"beta":1.0}},"of":[2,2]},
        {"do":{"concat":{"axis":1}},"of":[3,2]}"#;
    let said = rejected(&graph(nodes).replace(r#""value":2"#, r#""value":4"#));
    assert!(said.contains("depend on the batch"), "{said}");
}

#[test]
fn output_without_the_batch_is_rejected() {
    let reduced = graph(r#",{"do":{"reduce":{"by":"sum","axes":[0],"keep":true}},"of":[2]}"#);
    let second = reduced.replace(r#"{"name":"y","value":2}"#, r#"{"name":"y","value":2},{"name":"z","value":3}"#);
    let said = rejected(&second);
    assert!(said.contains("output `z`") && said.contains("its first axis must be the batch"), "{said}");
    // The first 20 examples alone.
    let cut = graph(r#",{"do":{"slice":{"axis":0,"start":{},"end":{"offset":20},"step":1}},"of":[2]}"#);
    let said = rejected(&cut.replace(r#""value":2"#, r#""value":3"#));
    assert!(said.contains("has the shape [20, 3] for a batch of 32"), "{said}");
}

#[test]
fn output_that_shrinks_beyond_the_samples_is_rejected() {
    // Of 3 columns, as many as 60 examples leave.
    let slice =
        r#",{"do":{"slice":{"axis":1,"start":{},"end":{"factor":-1,"batch":1,"offset":62},"step":1}},"of":[2]}"#;
    let graph = decode(graph(slice).replace(r#""value":2"#, r#""value":3"#).as_bytes()).unwrap();
    assert!(infer(&graph, Point { batch: 59, length: 1 }).is_ok());
    let said = infer(&graph, Point { batch: 60, length: 1 }).unwrap_err().to_string();
    assert!(said.contains("depend on the batch: [3] for 1 example, [2] for 60"), "{said}");
}

#[test]
fn input_with_a_second_batch_axis_is_rejected() {
    for size in [r#"{"factor":1,"batch":1}"#, r#"{"factor":2,"length":1}"#] {
        let json = graph("").replace(r#"{"offset":2}]"#, &format!(r#"{{"offset":2}},{size}]"#));
        let said = rejected(&json);
        assert!(said.contains("needs fixed sizes, or the length, after its first axis"), "{said}");
    }
}

#[test]
fn numbers_that_json_lacks_are_rejected() {
    // 1e39 is a number of JSON, and an infinity in 32 bits where a graph is read from a task's value.
    for (node, why) in [
        (r#"{"pad":{"pads":[[0,0],[0,1]],"with":{"constant":-1e39}}}"#, "the padding is -inf; it must be finite"),
        (r#"{"activation":{"leaky_relu":{"alpha":1e39}}}"#, "alpha is inf"),
        (r#"{"activation":{"elu":{"alpha":1e39}}}"#, "alpha is inf"),
        (r#"{"activation":{"hard_sigmoid":{"alpha":1.0,"beta":1e39}}}"#, "beta is inf"),
        (r#"{"activation":{"clip":{"min":-1e39}}}"#, "a bound is -inf"),
        (r#"{"layer_norm":{"axis":1,"epsilon":1e39}}"#, "epsilon is inf"),
    ] {
        let inputs = if node.contains("layer_norm") { "0,3" } else { "2" };
        let parameter = r#""parameters":[{"name":"w","shape":[2,3]},{"name":"s","shape":[2]}],"#;
        let json = graph(&format!(r#",{{"do":{node},"of":[{inputs}]}}"#));
        let json = if inputs == "2" {
            json
        } else {
            json.replace(r#""parameters":[{"name":"w","shape":[2,3]}],"#, parameter)
                .replace(r#""of":[0,3]"#, r#""of":[0,2]"#)
                .replace(r#""value":2"#, r#""value":3"#)
        };
        let value: Value = serde_json::from_str(&json).unwrap();
        let said = serde_json::from_value::<Graph>(value).unwrap().check().unwrap_err().to_string();
        assert!(said.contains(why), "{node}: {said}");
    }
    let nan = Operation::Pad { pads: vec![(0, 0), (0, 1)], with: Padding::Constant(f32::NAN) };
    let mut changed = decode(graph("").as_bytes()).unwrap();
    changed.nodes.push(Node { name: String::new(), operation: nan, inputs: vec![ValueId(2)] });
    assert!(changed.check().unwrap_err().to_string().contains("the padding is NaN"));
}

#[test]
fn limits_hold_for_a_model_within_a_task() {
    let model = |graph: &str| {
        let loss = Value::from_iter([("kind", "cross_entropy")]);
        let parts = Value::from_iter([("graph", serde_json::from_str::<Value>(graph).unwrap()), ("loss", loss)]);
        serde_json::from_value::<GraphModel>(parts).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(model(&graph("")), Ok(()));
    let many = graph(&r#",{"do":{"activation":"relu"},"of":[2]}"#.repeat(14_000));
    assert!(model(&many).unwrap_err().contains("more than 524288 bytes as JSON"));
    let zeros = "0,".repeat((1 << 17) + 1);
    let zeros = zeros.trim_end_matches(',');
    let constant = format!(r#""constants":[{{"shape":[131073],"values":{{"i64":[{zeros}]}}}}],"nodes""#);
    let large = graph("").replace(r#""nodes""#, &constant).replace(r#""value":2"#, r#""value":3"#);
    assert!(model(&large).unwrap_err().contains("has 1048584 bytes of constants; at most 1048576 are allowed"));
}

#[test]
fn constant_with_nan_is_rejected() {
    let with = |value: f32| {
        let mut graph = decode(graph("").as_bytes()).unwrap();
        graph.constants.push(Constant { name: "mask".to_owned(), shape: vec![1], values: Values::F32(vec![value]) });
        graph.nodes[0].inputs = vec![ValueId(0), ValueId(1)];
        graph.outputs[0].value = ValueId(3);
        graph.check()
    };
    assert_eq!(with(f32::NEG_INFINITY), Ok(()));
    assert!(with(f32::NAN).unwrap_err().to_string().contains("constant `mask`: contains NaN"));
}

#[test]
fn names_of_all_parts_are_checked() {
    let constant = |name: &str| {
        let constant = format!(r#""constants":[{{"name":"{name}","shape":[1],"values":{{"bool":[true]}}}}],"nodes""#);
        graph("").replace(r#""nodes""#, &constant).replace(r#""value":2"#, r#""value":3"#)
    };
    assert!(decode(constant("mask").as_bytes()).is_ok());
    assert!(rejected(&constant(&"c".repeat(257))).contains("needs a name of at most 256 bytes"));
    let said = rejected(&constant(r"\u001b[31m"));
    assert!(said.contains("control character") && !said.contains('\u{1b}'), "{said:?}");
    for part in [r#""name":"x""#, r#""name":"w""#, r#""name":"y""#] {
        let said = rejected(&graph("").replace(part, r#""name":"a\nb""#));
        assert!(said.contains("control character") && !said.contains('\n'), "{said:?}");
    }
    let said = rejected(&graph("").replace(r#""do":"mat_mul""#, r#""name":"\r","do":"mat_mul""#));
    assert!(said.contains("node 0 (mat_mul, \\r)"), "{said:?}");
}

#[test]
fn fill_of_more_axes_than_its_shape_is_rejected() {
    let constant = r#""constants":[{"shape":[1,1,1],"values":{"bool":[true]}}],"nodes""#;
    let fill = r#",{"do":{"fill":{"shape":[{"factor":1,"batch":1}]}},"of":[2]}"#;
    let json = graph(fill).replace(r#""nodes""#, constant).replace(r#""value":2"#, r#""value":3"#);
    assert!(rejected(&json).contains("at most 1 axes"), "{}", rejected(&json));
}

#[test]
fn integer_power_takes_a_constant_from_zero_on() {
    let power = |exponent: i64, of: &str| {
        let constants = format!(
            r#""constants":[{{"shape":[],"values":{{"i64":[{exponent}]}}}}],"nodes":[{{"do":{{"cast":{{"to":"i64"}}}},"of":[0]}},
            {{"do":{{"arithmetic":"pow"}},"of":{of}}},"#
        );
        graph("").replace(r#""nodes":["#, &constants).replace(r#""value":2"#, r#""value":5"#)
    };
    assert!(decode(power(3, "[3,2]").as_bytes()).is_ok(), "{}", rejected(&power(3, "[3,2]")));
    assert!(rejected(&power(-1, "[3,2]")).contains("raises integers to the power -1"));
    assert!(rejected(&power(3, "[2,3]")).contains("a power that is no constant"));
}

#[test]
fn sizes_beyond_the_address_space_are_rejected() {
    let conv = |operation: &str, kernel: u32| {
        format!(
            r#"{{"version":1,"inputs":[{{"name":"x","element":"f32","shape":[{{"factor":1,"batch":1}},{{"offset":1}},{{"offset":65537}}]}}],
            "parameters":[{{"name":"w","shape":[1,1,{kernel}]}}],"nodes":[{{"do":{operation},"of":[0,1]}}],
            "outputs":[{{"name":"y","value":2}}]}}"#
        )
    };
    // 65536 * 65536 is 0 in 32 bits: the kernel would have a size of 1.
    let wide = r#"{"conv":{"strides":[1],"pads":[[0,0]],"dilations":[65536],"groups":1}}"#;
    assert!(rejected(&conv(wide, 65_537)).contains("the kernel is larger than spatial axis 0"));
    let far = r#"{"conv_transpose":{"of":{"strides":[65536],"pads":[[0,0]],"dilations":[1],"groups":1},"output_padding":[0]}}"#;
    assert!(rejected(&conv(far, 1)).contains("or more than 268435456"), "{}", rejected(&conv(far, 1)));
}

#[test]
fn windows_of_a_convolution_are_bounded() {
    let json = r#"{"version":1,"inputs":[{"name":"x","element":"f32","shape":[{"factor":1,"batch":1},{"offset":1},{"offset":1048576}]}],
        "parameters":[{"name":"w","shape":[1,1,524288]}],"nodes":[{"do":{"conv":{"strides":[1],"pads":[[0,0]],"dilations":[1],"groups":1}},"of":[0,1]}],
        "outputs":[{"name":"y","value":2}]}"#;
    assert!(rejected(json).contains("has windows of"), "{}", rejected(json));
}

#[test]
fn names_and_version_are_checked() {
    let twice = graph("").replace(r#""parameters":["#, r#""parameters":[{"name":"w","shape":[1]},"#);
    assert!(rejected(&twice).contains("has the name of another one"));
    assert!(rejected(&graph("").replace(r#""version":1"#, r#""version":3"#)).contains("has the format 3"));
    assert!(rejected(&"[".repeat(100_000)).contains("no graph"));
    assert!(rejected(&" ".repeat(super::MAX_BYTES + 1)).contains("more than 524288 bytes"));
}

/// A graph of a product and a batch normalization of this form.
fn normalized(version: u32, norm: &str) -> String {
    let parameters = ["scale", "bias", "mean", "variance"].map(|name| format!(r#",{{"name":"{name}","shape":[3]}}"#));
    let nodes = format!(r#",{{"do":{{"batch_norm":{norm}}},"of":[6,2,3,4,5]}}"#);
    graph(&nodes)
        .replace(r#""version":1"#, &format!(r#""version":{version}"#))
        .replace(r#""shape":[2,3]}"#, &format!(r#""shape":[2,3]}}{}"#, parameters.concat()))
        .replace(r#""value":2"#, r#""value":7"#)
}

#[test]
fn batch_statistics_are_found() {
    let frozen = decode(normalized(1, r#"{"epsilon":0.001}"#).as_bytes()).unwrap();
    assert!(frozen.batch_statistics().is_empty() && frozen.running_statistics().is_empty());
    assert_eq!(frozen.least_batch(1), Ok(1));
    let told = normalized(2, r#"{"epsilon":0.001,"momentum":0.1}"#);
    let by_batch = decode(told.as_bytes()).unwrap();
    let layer = BatchStatistics { node: 1, mean: 3, variance: 4, momentum: 0.1 };
    assert_eq!(by_batch.batch_statistics(), [layer]);
    assert_eq!(by_batch.running_statistics().into_iter().collect::<Vec<_>>(), [3, 4]);
    // One example has one value for each channel.
    assert_eq!(by_batch.least_batch(1), Ok(2));
    let written = String::from_utf8(crate::encode(&by_batch).unwrap()).unwrap();
    assert!(written.contains(r#""momentum":0.1"#), "{written}");
    assert!(!String::from_utf8(crate::encode(&frozen).unwrap()).unwrap().contains("momentum"));
}

#[test]
fn misused_batch_statistics_are_rejected() {
    let right = normalized(2, r#"{"epsilon":0.001,"momentum":0.1}"#);
    for (json, why) in [
        (right.replace(r#""momentum":0.1"#, r#""momentum":0.0"#), "momentum is 0; it must be above 0"),
        (right.replace(r#""momentum":0.1"#, r#""momentum":1.5"#), "momentum is 1.5"),
        (right.replace(r#""version":2"#, r#""version":1"#), "which graphs of the format 2 have; this is 1"),
        // The bias is also the mean; the mean is also the variance; x is the mean.
        (right.replace("[6,2,3,4,5]", "[6,2,3,3,5]"), "parameter `bias`: is a running statistic"),
        (right.replace("[6,2,3,4,5]", "[6,2,3,4,4]"), "parameter `mean`: is a running statistic"),
        (right.replace("[6,2,3,4,5]", "[6,2,3,4,0]"), "its mean and variance must be parameters"),
        (right.replace(r#""value":7}"#, r#""value":7},{"name":"m","value":4}"#), "parameter `mean`: is a running"),
    ] {
        let said = rejected(&json);
        assert!(said.contains(why), "{why}: {said}");
    }
}
