"""Prints `pytorch.txt`: what PyTorch computes for the operations in `mod.rs`.

A line is a name, the weighted sum of the result, and the weighted sum of the gradient of each input. Inputs and
weights are the repeatable numbers of `numbers`, sums are of 64 bits.
"""

import numpy as np
import torch
import torch.nn.functional as F


def numbers(shape, seed):
    count, state, found = int(np.prod(shape)), seed, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        unit = np.float32(state >> 40) / np.float32(8388608) - np.float32(1)
        found.append(unit + np.float32(0.05) * np.sign(unit))
    return torch.tensor(np.array(found, np.float32).astype(np.float64)).reshape(shape)


def golden(name, shapes, f, offset=0.0):
    inputs = [(numbers(s, 3 + i) + offset).requires_grad_() for i, s in enumerate(shapes)]
    result = f(*inputs)
    loss = (result * numbers(list(result.shape), 50)).sum()
    gradients = torch.autograd.grad(loss, inputs, allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, gradients)]
    sums = [(g * numbers(s, 70 + i)).sum() for i, (g, s) in enumerate(zip(gradients, shapes))]
    print(name, *(f"{float(value):.7g}" for value in [loss, *sums]))


def recurrence(cell, gates, order):
    def f(x, w, r, b, *states):
        hidden, weights = r.shape[2], []
        blocks = lambda v: torch.cat([v.reshape(gates, hidden, -1)[g] for g in order])
        for d in range(w.shape[0]):
            bias = b[d].reshape(2, -1)
            weights += [blocks(w[d]), blocks(r[d]), blocks(bias[0]).flatten(), blocks(bias[1]).flatten()]
        states = states if cell is torch.lstm else states[0]
        out = cell(x, states, weights, True, 1, 0.0, False, w.shape[0] == 2, False)[0]
        return out.reshape(*out.shape[:2], w.shape[0], hidden).transpose(1, 2)
    return f


def recurrent(gates, states):
    return [[4, 2, 5], [2, gates * 3, 5], [2, gates * 3, 3], [2, 2 * gates * 3]] + [[2, 2, 3]] * states


golden("conv", [[2, 3, 7, 6], [4, 3, 3, 2], [4]], lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0), (1, 2)))
golden("conv_grouped", [[2, 4, 6, 7], [6, 2, 3, 3], [6]], lambda x, w, b: F.conv2d(x, w, b, (2, 3), 1, 1, 2))
golden("conv_depthwise", [[2, 4, 5, 6], [8, 1, 3, 3], [8]], lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 4))
golden("conv_line", [[3, 2, 9], [4, 2, 3], [4]], lambda x, w, b: F.conv1d(x, w, b, 2, 2, 2))
golden("conv_transpose", [[2, 4, 3, 4], [4, 3, 3, 2], [6]],
       lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), (1, 0), (1, 0), 2, (1, 2)))
golden("conv_transpose_line", [[2, 3, 5], [3, 2, 4], [2]], lambda x, w, b: F.conv_transpose1d(x, w, b, 3, 1, 2))
golden("max_pool", [[2, 2, 6, 7]], lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True))
golden("mean_pool", [[2, 2, 6, 7]], lambda x: F.avg_pool2d(x, 3, 2, 1, True, count_include_pad=False))
golden("mean_pool_with_padding", [[2, 2, 6, 7]], lambda x: F.avg_pool2d(x, 3, 2, 1, True))
golden("layer_norm", [[2, 3, 5], [3, 5], [3, 5]], lambda x, s, b: F.layer_norm(x, [3, 5], s, b, 1e-3))
golden("group_norm", [[2, 6, 3, 2], [6], [6]], lambda x, s, b: F.group_norm(x, 3, s, b, 1e-3))
golden("batch_norm", [[2, 3, 2, 2], [3], [3], [3], [3]],
       lambda x, s, b, m, v: (x - m[:, None, None]) / (v[:, None, None] + 1e-3).sqrt() * s[:, None, None] + b[:, None, None], 1.5)
by_batch = lambda x, s, b, m, v: F.batch_norm(x, m.detach().clone(), v.detach().clone(), s, b, True, 0.1, 1e-3)
golden("batch_norm_by_batch", [[2, 3, 2, 2], [3], [3], [3], [3]], by_batch, 1.5)
golden("batch_norm_of_rows", [[5, 3], [3], [3], [3], [3]], by_batch, 1.5)
golden("softmax", [[2, 3, 4]], lambda x: x.softmax(1))
golden("log_softmax", [[2, 3, 4]], lambda x: x.log_softmax(1))
for name, f in [("erf", torch.erf), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("exp", torch.exp), ("sin", torch.sin),
                ("cos", torch.cos), ("elu", lambda x: F.elu(x, 0.7)), ("gelu", F.gelu), ("softplus", F.softplus),
                ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")), ("hard_sigmoid", F.hardsigmoid),
                ("hard_swish", F.hardswish), ("leaky_relu", lambda x: F.leaky_relu(x, 0.1))]:
    golden(name, [[5, 7]], lambda x: f(4 * x))
golden("log", [[5, 7]], lambda x: x.log(), 2.5)
golden("matmul", [[2, 1, 3, 4], [3, 4, 2]], torch.matmul)
golden("gemm", [[4, 3], [5, 4], [3, 1]], lambda a, b, c: 0.7 * a.T @ b.T - 1.3 * c)
golden("norm", [[2, 3, 4]], lambda x: x.norm(dim=(0, 2)))
golden("product", [[2, 3, 4]], lambda x: x.prod(1))
golden("cum_sum", [[2, 3, 4]], lambda x: x.cumsum(1))
golden("reflect", [[1, 3, 4]], lambda x: F.pad(x, (2, 1), mode="reflect"))
golden("resize_half_pixel", [[2, 2, 3, 4]], lambda x: F.interpolate(x, (5, 3), mode="bilinear"))
golden("resize_corners", [[2, 2, 3, 4]], lambda x: F.interpolate(x, (5, 6), mode="bilinear", align_corners=True))
golden("resize_nearest", [[2, 2, 3, 4]], lambda x: F.interpolate(x, (5, 6)))
golden("lstm", recurrent(4, 2), recurrence(torch.lstm, 4, [0, 2, 3, 1]))
golden("gru", recurrent(3, 1), recurrence(torch.gru, 3, [1, 0, 2]))
golden("rnn", recurrent(1, 1), recurrence(torch.rnn_tanh, 1, [0]))
