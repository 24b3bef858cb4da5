//! Functions of elements, and operations that move them.

use graph::{Activation, Arithmetic, Comparison, Element, Logic, Operation, Padding, Size, Values};

use super::{Case, Given, case, floats, sizes_of};

fn integers(sizes: &[i64]) -> Given {
    Given::Input(Element::I64, sizes_of(sizes))
}

fn truths(sizes: &[i64]) -> Given {
    Given::Input(Element::Bool, sizes_of(sizes))
}

/// The length plus a number.
const fn length(offset: i64) -> Size {
    Size { factor: 1, batch: 0, length: 1, offset }
}

pub(super) fn elementwise() -> Vec<Case> {
    let mut cases: Vec<_> = [activations(), arithmetic()].into_iter().flatten().collect();
    for by in
        [Comparison::Equal, Comparison::Less, Comparison::LessOrEqual, Comparison::Greater, Comparison::GreaterOrEqual]
    {
        let operation = Operation::Comparison(by);
        cases.push(case(format!("{by:?}_f32"), operation.clone(), vec![floats(&[4, 3]), floats(&[1, 3])]));
        cases.push(case(format!("{by:?}_i64"), operation, vec![integers(&[4, 3]), integers(&[4, 1])]));
    }
    let bools = Operation::Comparison(Comparison::Equal);
    cases.push(case("equal_bool", bools, vec![truths(&[4]), truths(&[4])]));
    for by in [Logic::And, Logic::Or, Logic::Xor] {
        cases.push(case(format!("{by:?}"), Operation::Logic(by), vec![truths(&[4, 3]), truths(&[1, 3])]));
    }
    cases.push(case("not", Operation::Logic(Logic::Not), vec![truths(&[4])]));
    for (name, of) in [("f32", Element::F32), ("i64", Element::I64), ("bool", Element::Bool)] {
        let given = |sizes: &[i64]| Given::Input(of, sizes_of(sizes));
        let inputs = vec![truths(&[4, 1]), given(&[4, 3]), given(&[1, 3])];
        cases.push(case(format!("where_{name}"), Operation::Where, inputs));
        for (target, to) in [("f32", Element::F32), ("i64", Element::I64), ("bool", Element::Bool)] {
            let operation = Operation::Cast { to };
            cases.push(Case { offset: 3.5, ..case(format!("cast_{name}_{target}"), operation, vec![given(&[4])]) });
        }
    }
    cases
}

fn activations() -> Vec<Case> {
    let all = [
        Activation::Identity,
        Activation::Neg,
        Activation::Abs,
        Activation::Exp,
        Activation::Reciprocal,
        Activation::Erf,
        Activation::Sin,
        Activation::Cos,
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::Relu,
        Activation::LeakyRelu { alpha: 0.1 },
        Activation::Elu { alpha: 0.7 },
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Softplus,
        Activation::HardSigmoid { alpha: 0.2, beta: 0.4 },
        Activation::HardSwish,
        Activation::Clip { min: Some(-0.5), max: None },
        Activation::Clip { min: None, max: Some(0.25) },
        Activation::Clip { min: Some(-0.5), max: Some(0.25) },
        Activation::Floor,
        Activation::Ceil,
        Activation::Sign,
    ];
    let name = |number: usize, kind: Activation| {
        let kind = format!("{kind:?}");
        format!("activation_{number}_{}", kind.split(' ').next().unwrap_or_default())
    };
    let of = |(number, kind)| Case {
        scale: 4.0,
        ..case(name(number, kind), Operation::Activation(kind), vec![floats(&[5, 7])])
    };
    let mut cases: Vec<_> = all.into_iter().enumerate().map(of).collect();
    for (number, kind) in [Activation::Log, Activation::Sqrt].into_iter().enumerate() {
        let positive = case(name(100 + number, kind), Operation::Activation(kind), vec![floats(&[5, 7])]);
        cases.push(Case { offset: 1.5, ..positive });
    }
    cases
}

fn arithmetic() -> Vec<Case> {
    let mut cases = Vec::new();
    for by in [
        Arithmetic::Add,
        Arithmetic::Sub,
        Arithmetic::Mul,
        Arithmetic::Div,
        Arithmetic::Pow,
        Arithmetic::Mod,
        Arithmetic::Min,
        Arithmetic::Max,
    ] {
        let operation = Operation::Arithmetic(by);
        let of_floats = case(format!("{by:?}_f32"), operation.clone(), vec![floats(&[4, 3]), floats(&[1, 3])]);
        // A power of a negative number is none, and a quotient of small numbers is large.
        cases.push(Case { offset: 1.5, ..of_floats });
        let constant = |values: [i64; 3]| Given::Constant(vec![3], Values::I64(values.to_vec()));
        // The exponent of integers is a constant from 0 on.
        let other = if by == Arithmetic::Pow { constant([2, 0, 3]) } else { integers(&[4, 1]) };
        cases.push(case(format!("{by:?}_i64"), operation.clone(), vec![integers(&[4, 3]), other]));
        if by != Arithmetic::Pow {
            let negative = vec![integers(&[4, 3]), constant([-2, 3, -1])];
            cases.push(case(format!("{by:?}_i64_negative"), operation, negative));
        }
    }
    let negative = Given::Constant(vec![3], Values::F32(vec![-0.7, 0.4, -1.9]));
    let modulo = Operation::Arithmetic(Arithmetic::Mod);
    cases.push(case("Mod_f32_negative", modulo, vec![floats(&[4, 3]), negative]));
    cases
}

pub(super) fn selection() -> Vec<Case> {
    let slice = |axis, start, end, step| Operation::Slice { axis, start, end, step };
    let fixed = Size::fixed;
    let positions = || Given::Constant(vec![2, 2], Values::I64(vec![0, -1, 3, 1]));
    vec![
        case("slice_step", slice(1, fixed(1), fixed(6), 2), vec![floats(&[7, 2])]),
        case("slice_end", slice(1, fixed(-3), fixed(i64::from(i32::MAX)), 1), vec![floats(&[7, 2])]),
        case("slice_down", slice(2, fixed(-1), fixed(-i64::from(i32::MAX)), -2), vec![floats(&[3, 5])]),
        case("slice_length", slice(1, fixed(0), length(-1), 1), vec![floats(&[0, 3])]),
        case("slice_from_length", slice(1, length(-2), length(0), 1), vec![floats(&[0, 3])]),
        case("slice_bool", slice(1, fixed(1), fixed(3), 1), vec![truths(&[4])]),
        case("gather_constant", Operation::Gather { axis: 1 }, vec![floats(&[4, 3]), positions()]),
        case("gather_embedding", Operation::Gather { axis: 0 }, vec![Given::Parameter(vec![5, 3]), integers(&[0])]),
        case("gather_i64", Operation::Gather { axis: 1 }, vec![integers(&[4]), positions()]),
        case("gather_elements", Operation::GatherElements { axis: 2 }, vec![floats(&[4, 5]), integers(&[3, 2])]),
        case("gather_elements_1", Operation::GatherElements { axis: 1 }, vec![integers(&[4]), integers(&[2])]),
        case("triangle_upper", Operation::Triangle { upper: true, k: 1 }, vec![floats(&[4, 5])]),
        case("triangle_lower", Operation::Triangle { upper: false, k: -1 }, vec![floats(&[4, 5])]),
        case("triangle_i64", Operation::Triangle { upper: false, k: 0 }, vec![integers(&[4, 5])]),
        case("triangle_bool", Operation::Triangle { upper: true, k: 0 }, vec![truths(&[4, 5])]),
    ]
}

pub(super) fn movement() -> Vec<Case> {
    let reshape = |to: &[Option<Size>]| Operation::Reshape { to: to.to_vec() };
    let (batch, all) = (Some(Size::BATCH), Some(length(0)));
    let fixed = |size| Some(Size::fixed(size));
    let both = Size { factor: 2, batch: 1, length: 1, offset: 0 };
    let mut cases = vec![
        case("reshape_rest", reshape(&[batch, None]), vec![floats(&[3, 4])]),
        case("reshape_fixed", reshape(&[batch, fixed(2), fixed(6)]), vec![floats(&[3, 4])]),
        case("reshape_length", reshape(&[batch, all, fixed(2), fixed(2)]), vec![floats(&[0, 4])]),
        Case {
            after: vec![reshape(&[batch, all, fixed(4)])],
            ..case("reshape_product", reshape(&[Some(both), fixed(2)]), vec![floats(&[0, 4])])
        },
        case("transpose", Operation::Transpose { order: vec![0, 2, 1] }, vec![floats(&[3, 4])]),
        case("expand", Operation::Expand { to: sizes_of(&[0, 3]) }, vec![floats(&[1, 3])]),
        case("expand_rank", Operation::Expand { to: sizes_of(&[4, 3]) }, vec![Given::Parameter(vec![3])]),
        case("expand_bool", Operation::Expand { to: sizes_of(&[2, 3]) }, vec![truths(&[1, 3])]),
        case("concat", Operation::Concat { axis: 2 }, vec![floats(&[3, 1]), floats(&[3, 4])]),
        case("concat_i64", Operation::Concat { axis: 1 }, vec![integers(&[1]), integers(&[4])]),
        case(
            "fill",
            Operation::Fill { shape: sizes_of(&[3, 0]) },
            vec![Given::Constant(vec![1, 1], Values::F32(vec![2.5]))],
        ),
        case(
            "fill_i64",
            Operation::Fill { shape: sizes_of(&[3]) },
            vec![Given::Constant(vec![], Values::I64(vec![4]))],
        ),
        case("cum_sum", Operation::CumSum { axis: 1 }, vec![floats(&[4, 3])]),
    ];
    let range = |start, end, step| Operation::Range { start, end, step };
    let fixed_range = range(Size::fixed(7), Size::fixed(0), -3);
    let expand = |sizes: &[i64]| vec![Operation::Expand { to: sizes_of(sizes) }];
    cases.push(Case { after: expand(&[3]), ..case("range_down", fixed_range, vec![]) });
    let to_length = range(Size::fixed(0), length(0), 1);
    cases.push(Case { after: expand(&[0]), ..case("range_length", to_length, vec![]) });
    cases.push(case("range_batch", range(Size::fixed(0), Size::BATCH, 1), vec![]));
    for (name, with) in [("constant", Padding::Constant(-1.5)), ("edge", Padding::Edge), ("reflect", Padding::Reflect)]
    {
        let pads = vec![(0, 0), (1, 0), (2, 3)];
        cases.push(case(format!("pad_{name}"), Operation::Pad { pads, with }, vec![floats(&[3, 4])]));
        let pads = vec![(0, 0), (-1, 1), (2, -1)];
        cases.push(case(format!("pad_cut_{name}"), Operation::Pad { pads, with }, vec![floats(&[3, 4])]));
    }
    cases
}
