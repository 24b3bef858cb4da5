//! Every way to compute a convolution against plain loops, in numbers whose sums are exact in any order.

use graph::{Convolution, Element, TensorType};

use super::{Layer, Way, conv, conv_back};
use crate::train::graph::context::{Context, Gradients};
use crate::train::graph::tensor::{Operand, Tensor};

/// Sizes of a convolution.
struct Case {
    way: &'static str,
    /// Images, channels, rows, columns.
    x: [usize; 4],
    /// Channels of the result, and sides of the kernel.
    outputs: usize,
    kernel: [usize; 2],
    strides: [u32; 2],
    pads: [u32; 2],
    dilations: [u32; 2],
    groups: usize,
}

const PLAIN: Case = Case {
    way: "direct",
    x: [2, 8, 6, 7],
    outputs: 8,
    kernel: [3, 3],
    strides: [1, 1],
    pads: [1, 1],
    dilations: [1, 1],
    groups: 1,
};

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|index| (((index + seed) * 7919 + 13) % 7) as f32 - 3.0).collect()
}

impl Case {
    fn convolution(&self) -> Convolution {
        let pads = self.pads.map(|pad| (pad, pad)).to_vec();
        #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
        let groups = self.groups as u32;
        Convolution { strides: self.strides.to_vec(), pads, dilations: self.dilations.to_vec(), groups }
    }

    fn weights(&self) -> [usize; 4] {
        [self.outputs, self.x[1] / self.groups, self.kernel[0], self.kernel[1]]
    }

    fn result(&self) -> [usize; 4] {
        let side = |axis: usize| {
            let [pad, dilation, stride] = [self.pads, self.dilations, self.strides].map(|values| values[axis] as usize);
            (self.x[2 + axis] + 2 * pad - dilation * (self.kernel[axis] - 1) - 1) / stride + 1
        };
        [self.x[0], self.outputs, side(0), side(1)]
    }

    /// Calls `visit` with the positions of result, image and weight of each product.
    fn each(&self, mut visit: impl FnMut([usize; 3])) {
        let ([images, channels, height, width], [_, _, rows, columns]) = (self.x, self.result());
        let (inputs, per_group) = (channels / self.groups, self.outputs / self.groups);
        let inside = |axis: usize, place: usize, kernel: usize, size: usize| {
            let at = place * self.strides[axis] as usize + kernel * self.dilations[axis] as usize;
            at.checked_sub(self.pads[axis] as usize).filter(|at| *at < size)
        };
        for place in 0..images * self.outputs * rows * columns {
            let (row, column) = (place / columns % rows, place % columns);
            let (image, output) = (place / columns / rows / self.outputs, place / columns / rows % self.outputs);
            for weight in 0..inputs * self.kernel[0] * self.kernel[1] {
                let channel = weight / self.kernel[1] / self.kernel[0] + output / per_group * inputs;
                let y = inside(0, row, weight / self.kernel[1] % self.kernel[0], height);
                let x = inside(1, column, weight % self.kernel[1], width);
                if let (Some(y), Some(x)) = (y, x) {
                    let at = ((image * channels + channel) * height + y) * width + x;
                    visit([place, at, output * inputs * self.kernel[0] * self.kernel[1] + weight]);
                }
            }
        }
    }

    fn check(&self) {
        let (x_shape, w_shape, y_shape) = (self.x, self.weights(), self.result());
        let [x, w, dy] =
            [(x_shape, 0), (w_shape, 3), (y_shape, 5)].map(|(shape, seed)| numbers(shape.iter().product(), seed));
        let (mut y, mut dx, mut dw) = (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
        self.each(|[place, at, weight]| {
            y[place] += x[at] * w[weight];
            dx[at] += dy[place] * w[weight];
            dw[weight] += dy[place] * x[at];
        });
        let of = self.convolution();
        let way = match Layer::of(&of, &x_shape, &w_shape, &y_shape).way() {
            Way::Direct(_) => "direct",
            Way::Depthwise => "depthwise",
            Way::Pointwise => "pointwise",
            Way::Windows => "windows",
        };
        assert_eq!(way, self.way);
        let (tensors, mut context) = ([Tensor::F32(x), Tensor::F32(w)], Context::new());
        let inputs = [(&x_shape, &tensors[0]), (&w_shape, &tensors[1])]
            .map(|(shape, tensor)| Operand { shape: &shape[..], tensor });
        let kind = TensorType { element: Element::F32, shape: y_shape.to_vec() };
        let mut result = Tensor::zeros(&kind);
        result.f32_mut().fill(f32::NAN);
        conv(&of, &inputs, &y_shape, result.f32_mut(), &mut context);
        assert!(result.f32() == y, "{way}: the result of {:?}", self.x);
        // The first pass replaces what an earlier one left, the second adds.
        let (mut all, mut begun) = ([vec![f32::NAN; dx.len()], vec![f32::NAN; dw.len()]], [false; 2]);
        for factor in [1.0, 2.0] {
            let mut gradients = Gradients { all: &mut all, begun: &mut begun, inputs: &[0, 1] };
            conv_back(&of, &inputs, &y_shape, &dy, &mut gradients, &mut context);
            for (found, expected) in all.iter().zip([&dx, &dw]) {
                let is_equal = found.iter().zip(expected).all(|(found, expected)| *found == factor * expected);
                assert!(is_equal, "{way}: {factor} times the gradient of {} numbers of {:?}", found.len(), self.x);
            }
        }
    }
}

#[test]
fn convolution_in_place_equals_plain_loops() {
    PLAIN.check();
    Case { x: [3, 20, 9, 16], outputs: 37, ..PLAIN }.check();
    Case { x: [1, 1, 10, 11], outputs: 9, kernel: [5, 5], pads: [2, 2], ..PLAIN }.check();
    Case { x: [2, 33, 5, 6], outputs: 16, kernel: [2, 3], pads: [0, 1], dilations: [2, 1], ..PLAIN }.check();
    Case { x: [2, 9, 9, 7], outputs: 12, strides: [2, 2], ..PLAIN }.check();
    Case { x: [2, 16, 6, 5], outputs: 32, groups: 2, ..PLAIN }.check();
}

#[test]
fn convolution_of_each_channel_equals_plain_loops() {
    let plain = Case { way: "depthwise", x: [2, 3, 7, 9], outputs: 3, groups: 3, ..PLAIN };
    Case { outputs: 6, ..plain }.check();
    Case { x: [1, 2, 3, 24], outputs: 2, groups: 2, pads: [0, 2], ..plain }.check();
    Case { kernel: [5, 5], pads: [2, 1], ..plain }.check();
    Case { kernel: [3, 2], ..plain }.check();
    Case { strides: [2, 1], ..plain }.check();
}

#[test]
fn convolution_of_pixels_and_by_windows_equals_plain_loops() {
    Case { way: "pointwise", kernel: [1, 1], pads: [0, 0], x: [2, 5, 6, 7], outputs: 37, ..PLAIN }.check();
    Case { way: "windows", outputs: 5, ..PLAIN }.check();
    Case { way: "windows", dilations: [1, 2], ..PLAIN }.check();
}
