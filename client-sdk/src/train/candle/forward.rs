//! The forward passes of the models in candle.

use candle_core::{D, Tensor};
use candle_nn::ops::sigmoid;

use crate::models::{Architecture, Cnn, Gru, cnn};

/// Scores of each class before softmax, shape `[predictions, classes]`, from tensors in the layout's order. `input` is
/// `[batch, inputs]` of numbers, or `[batch, length]` in `u32` for characters (then `batch * length` predictions).
pub(super) fn logits(architecture: &Architecture, tensors: &[Tensor], input: &Tensor) -> candle_core::Result<Tensor> {
    match architecture {
        Architecture::Linear(_) | Architecture::Mlp(_) => dense(tensors, input),
        Architecture::Cnn(sizes) => convolutional(sizes, tensors, input),
        Architecture::Gru(sizes) => recurrent(sizes, tensors, input),
        Architecture::Graph(_) => candle_core::bail!("a graph has an executor of its own"),
    }
}

/// Affine layers with ReLU between them.
fn dense(tensors: &[Tensor], input: &Tensor) -> candle_core::Result<Tensor> {
    let mut x = affine(input, &tensors[0], &tensors[1])?;
    for layer in tensors[2..].chunks_exact(2) {
        x = affine(&x.relu()?, &layer[0], &layer[1])?;
    }
    Ok(x)
}

fn convolutional(sizes: &Cnn, tensors: &[Tensor], input: &Tensor) -> candle_core::Result<Tensor> {
    let (height, width) = (sizes.height as usize, sizes.width as usize);
    let mut x = input.reshape(((), sizes.channels as usize, height, width))?;
    for layer in tensors[..4].chunks_exact(2) {
        let bias = layer[1].reshape((1, (), 1, 1))?;
        x = pool(&x.conv2d(&layer[0], cnn::KERNEL as usize / 2, 1, 1, 1)?.broadcast_add(&bias)?.relu()?)?;
    }
    dense(&tensors[4..], &x.flatten_from(1)?)
}

/// Maximum over each 2x2 pixels; an odd last row or column is dropped. By an index, so that one of several equal pixels gets the
/// gradient: candle's `max` gives it to each of them. Its `max_pool2d` has a quarter of the gradient (0.11.1), misplaced if a side is odd.
fn pool(x: &Tensor) -> candle_core::Result<Tensor> {
    let (batch, channels, height, width) = x.dims4()?;
    let (height, width) = (height / 2, width / 2);
    let x = x.narrow(2, 0, 2 * height)?.narrow(3, 0, 2 * width)?.contiguous()?;
    let x = x.reshape((batch, channels, height, 2, width, 2))?.permute([0, 1, 2, 4, 3, 5])?.contiguous()?;
    let x = x.reshape((batch, channels, height, width, 4))?;
    x.gather(&x.argmax_keepdim(D::Minus1)?, D::Minus1)?.squeeze(D::Minus1)
}

fn recurrent(sizes: &Gru, tensors: &[Tensor], input: &Tensor) -> candle_core::Result<Tensor> {
    let (batch, length) = input.dims2()?;
    let characters = input.t()?.contiguous()?.flatten_all()?;
    // By position, then example, so that each step of the recurrence is one block of rows.
    let mut x = tensors[0].index_select(&characters, 0)?;
    for layer in tensors[1..tensors.len() - 2].chunks_exact(4) {
        x = recurrence(sizes.hidden as usize, layer, &x, batch, length)?;
    }
    let logits = affine(&x, &tensors[tensors.len() - 2], &tensors[tensors.len() - 1])?;
    logits.reshape((length, batch, ()))?.transpose(0, 1)?.contiguous()?.flatten_to(1)
}

/// `[length * batch, inputs]` to `[length * batch, hidden]`; the state starts at zero.
fn recurrence(hidden: usize, layer: &[Tensor], x: &Tensor, batch: usize, length: usize) -> candle_core::Result<Tensor> {
    let [w_ih, w_hh, b_ih, b_hh] = layer else { candle_core::bail!("a recurrent layer has four tensors") };
    let inputs = affine(x, w_ih, b_ih)?;
    let mut state = Tensor::zeros((batch, hidden), x.dtype(), x.device())?;
    let mut states = Vec::with_capacity(length);
    for position in 0..length {
        let input = inputs.narrow(0, position * batch, batch)?;
        let own = affine(&state, w_hh, b_hh)?;
        let gates = sigmoid(&(input.narrow(D::Minus1, 0, 2 * hidden)? + own.narrow(D::Minus1, 0, 2 * hidden)?)?)?;
        let reset = gates.narrow(D::Minus1, 0, hidden)?;
        let update = gates.narrow(D::Minus1, hidden, hidden)?;
        let memory = (reset * own.narrow(D::Minus1, 2 * hidden, hidden)?)?;
        let candidate = (input.narrow(D::Minus1, 2 * hidden, hidden)? + memory)?.tanh()?;
        state = (&candidate + (update * (state - &candidate)?)?)?;
        states.push(state.clone());
    }
    Tensor::cat(&states, 0)
}

/// `x W^T + b` with PyTorch's `[outputs, inputs]` weights.
fn affine(x: &Tensor, weight: &Tensor, bias: &Tensor) -> candle_core::Result<Tensor> {
    x.matmul(&weight.t()?)?.broadcast_add(bias)
}
