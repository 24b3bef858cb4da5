//! Functions of each element.

use graph::{Activation, Arithmetic, Comparison, Element, Logic};

use super::names::Names;
use super::writer::{Writer, element, float, integer};

pub(super) fn activation(w: &mut Writer<'_>, activation: Activation, names: &Names) {
    let simple = |operator| (operator, vec![]);
    let (operator, attributes) = match activation {
        Activation::Identity => simple("Identity"),
        Activation::Neg => simple("Neg"),
        Activation::Abs => simple("Abs"),
        Activation::Exp => simple("Exp"),
        Activation::Log => simple("Log"),
        Activation::Sqrt => simple("Sqrt"),
        Activation::Reciprocal => simple("Reciprocal"),
        Activation::Erf => simple("Erf"),
        Activation::Sin => simple("Sin"),
        Activation::Cos => simple("Cos"),
        Activation::Tanh => simple("Tanh"),
        Activation::Sigmoid => simple("Sigmoid"),
        Activation::Relu => simple("Relu"),
        Activation::LeakyRelu { alpha } => ("LeakyRelu", vec![float("alpha", alpha)]),
        Activation::Elu { alpha } => ("Elu", vec![float("alpha", alpha)]),
        Activation::Gelu => return gelu(w, names),
        Activation::GeluTanh => return gelu_tanh(w, names),
        Activation::Softplus => simple("Softplus"),
        Activation::HardSigmoid { alpha, beta } => ("HardSigmoid", vec![float("alpha", alpha), float("beta", beta)]),
        Activation::HardSwish => simple("HardSwish"),
        Activation::Clip { min, max } => return clip(w, [min, max], names),
        Activation::Floor => simple("Floor"),
        Activation::Ceil => simple("Ceil"),
        Activation::Sign => simple("Sign"),
    };
    w.node_to(operator, &names.all(), &names.output, attributes);
}

fn clip(w: &mut Writer<'_>, bounds: [Option<f32>; 2], names: &Names) {
    let [min, max] = bounds.map(|bound| bound.map_or_else(String::new, |bound| w.float(bound)));
    let inputs: &[&str] = match (min.as_str(), max.as_str()) {
        ("", "") => &[names.input(0)],
        (min, "") => &[names.input(0), min],
        (min, max) => &[names.input(0), min, max],
    };
    w.node_to("Clip", inputs, &names.output, vec![]);
}

/// `x * (1 + erf(x / sqrt(2))) / 2`: the operator `Gelu` is younger than the opset.
fn gelu(w: &mut Writer<'_>, names: &Names) {
    let x = names.input(0);
    let factor = w.float(std::f32::consts::FRAC_1_SQRT_2);
    let scaled = w.node("Mul", &[x, &factor], vec![]);
    let erf = w.node("Erf", &[&scaled], vec![]);
    half_of_product(w, &erf, names);
}

/// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`.
fn gelu_tanh(w: &mut Writer<'_>, names: &Names) {
    let x = names.input(0);
    let [cubic, one, factor] =
        [0.044_715, 1.0, (2.0 * std::f32::consts::FRAC_1_PI).sqrt()].map(|number| w.float(number));
    let square = w.node("Mul", &[x, x], vec![]);
    let square = w.node("Mul", &[&square, &cubic], vec![]);
    let square = w.node("Add", &[&square, &one], vec![]);
    let inner = w.node("Mul", &[x, &factor], vec![]);
    let inner = w.node("Mul", &[&inner, &square], vec![]);
    let tanh = w.node("Tanh", &[&inner], vec![]);
    half_of_product(w, &tanh, names);
}

/// `x * (1 + y) / 2`.
fn half_of_product(w: &mut Writer<'_>, y: &str, names: &Names) {
    let [one, half] = [1.0, 0.5].map(|number| w.float(number));
    let sum = w.node("Add", &[y, &one], vec![]);
    let product = w.node("Mul", &[names.input(0), &sum], vec![]);
    w.node_to("Mul", &[&product, &half], &names.output, vec![]);
}

pub(super) fn arithmetic(w: &mut Writer<'_>, by: Arithmetic, of: Element, names: &Names) {
    let (operator, attributes) = match by {
        Arithmetic::Add => ("Add", vec![]),
        Arithmetic::Sub => ("Sub", vec![]),
        Arithmetic::Mul => ("Mul", vec![]),
        Arithmetic::Div => ("Div", vec![]),
        Arithmetic::Pow => ("Pow", vec![]),
        Arithmetic::Mod if of == Element::F32 => return remainder(w, names),
        Arithmetic::Mod => ("Mod", vec![integer("fmod", 0)]),
        Arithmetic::Min => ("Min", vec![]),
        Arithmetic::Max => ("Max", vec![]),
    };
    w.node_to(operator, &names.all(), &names.output, attributes);
}

/// `a - floor(a / b) * b`: of floats, the operator `Mod` has the sign of `a`.
fn remainder(w: &mut Writer<'_>, names: &Names) {
    let (a, b) = (names.input(0), names.input(1));
    let quotient = w.node("Div", &[a, b], vec![]);
    let whole = w.node("Floor", &[&quotient], vec![]);
    let multiple = w.node("Mul", &[&whole, b], vec![]);
    w.node_to("Sub", &[a, &multiple], &names.output, vec![]);
}

pub(super) fn comparison(w: &mut Writer<'_>, by: Comparison, names: &Names) {
    let operator = match by {
        Comparison::Equal => "Equal",
        Comparison::Less => "Less",
        Comparison::LessOrEqual => "LessOrEqual",
        Comparison::Greater => "Greater",
        Comparison::GreaterOrEqual => "GreaterOrEqual",
    };
    w.node_to(operator, &names.all(), &names.output, vec![]);
}

pub(super) fn logic(w: &mut Writer<'_>, by: Logic, names: &Names) {
    let operator = match by {
        Logic::And => "And",
        Logic::Or => "Or",
        Logic::Xor => "Xor",
        Logic::Not => "Not",
    };
    w.node_to(operator, &names.all(), &names.output, vec![]);
}

/// ONNX Runtime has no choice between truth values on a CPU: these are `(c and a) or (not c and b)`.
pub(super) fn choice(w: &mut Writer<'_>, of: Element, names: &Names) {
    match of {
        Element::F32 | Element::I64 => w.node_to("Where", &names.all(), &names.output, vec![]),
        Element::Bool => {
            let (condition, a, b) = (names.input(0), names.input(1), names.input(2));
            let first = w.node("And", &[condition, a], vec![]);
            let opposite = w.node("Not", &[condition], vec![]);
            let second = w.node("And", &[&opposite, b], vec![]);
            w.node_to("Or", &[&first, &second], &names.output, vec![]);
        }
    }
}

pub(super) fn cast(w: &mut Writer<'_>, to: Element, names: &Names) {
    w.node_to("Cast", &names.all(), &names.output, vec![element("to", to)]);
}
