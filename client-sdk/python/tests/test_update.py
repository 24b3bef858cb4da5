"""Updates as PyTorch and JAX make them. A few lines stand for PyTorch where it is not installed; what needs it or JAX says so and is skipped."""

import sys
import types
import unittest
import unittest.mock

import numpy as np
import tributary as tb
from federation import installed
from tributary.update import copy_into, rows_of


class Tensor:
    """Stands for a tensor of PyTorch, which NumPy cannot convert while it is in bfloat16."""

    def __init__(self, values, dtype="float32"):
        self.values, self.dtype = np.asarray(values), dtype

    def detach(self):
        return self

    def is_floating_point(self):
        return self.dtype in ("float32", "bfloat16")

    def is_complex(self):
        return self.dtype == "complex64"

    def to(self, device=None, dtype=None):
        return Tensor(self.values, dtype or self.dtype)

    def __array__(self, *_, **__):
        if self.dtype == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values.astype(self.dtype)


class Module:
    """A module with BatchNorm, whose names have the prefix of a wrapper for several processes."""

    def __init__(self):
        weight, mean = Tensor([[1.0, 2.0], [3.0, 4.0]], "bfloat16"), Tensor([5.0, 6.0])
        self.state = {"module.0.weight": weight, "module.1.running_mean": mean, "module.1.num_batches_tracked": Tensor(7, "int64")}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        if set(state) != set(self.state):
            raise RuntimeError(f"unexpected: {sorted(set(state) ^ set(self.state))}")
        self.state = state


TORCH = types.SimpleNamespace(Tensor=Tensor, float32="float32", from_numpy=Tensor)


def places(**shapes):
    """A flat vector, and its tensors by name; `_` stands for a dot."""
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    flat = np.zeros(sum(sizes), "f4")
    parts = np.split(flat, np.cumsum(sizes)[:-1])
    return flat, {name.replace("__", "."): part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts)}


BARE = {"0__weight": (2, 2), "1__running_mean": (2,)}


class Frameworks(unittest.TestCase):
    def test_a_module_with_batch_norm_and_bfloat16(self):
        with unittest.mock.patch.dict(sys.modules, torch=TORCH):
            flat, own = places(**BARE)
            copy_into(flat, own, Module())
            np.testing.assert_array_equal(flat, [1, 2, 3, 4, 5, 6])
            # A task may name the counter, too.
            flat, own = places(**BARE, **{"1__num_batches_tracked": ()})
            copy_into(flat, own, Module())
            np.testing.assert_array_equal(flat, [1, 2, 3, 4, 5, 6, 7])
            for wrong, words in [
                ({**own, "more": Tensor([1.0])}, "unknown 'more'"),
                ({**own, "1.running_mean": Tensor([1.0, 2.0], "complex64")}, "complex64"),
                ({**own, "1.running_mean": Tensor([1.0])}, r"\(1,\)"),
            ]:
                with self.assertRaisesRegex(tb.UpdateError, words):
                    copy_into(flat, own, wrong)

    def test_a_task_whose_names_are_as_wrappers_make_them(self):
        with unittest.mock.patch.dict(sys.modules, torch=TORCH):
            flat, own = places(**{f"module__{name}": shape for name, shape in BARE.items()})
            copy_into(flat, own, Module())
            np.testing.assert_array_equal(flat, [1, 2, 3, 4, 5, 6])
            flat[:] = range(6)
            module = Module()
            tb.Task.load_into(types.SimpleNamespace(parameters=own), module)
            self.assertEqual(np.asarray(module.state["module.1.running_mean"]).tolist(), [4, 5])

    def test_a_module_is_loaded_and_goes_on_counting(self):
        with unittest.mock.patch.dict(sys.modules, torch=TORCH):
            module, (flat, own) = Module(), places(**BARE)
            flat[:] = range(6)
            tb.Task.load_into(types.SimpleNamespace(parameters=own), module)
            read = {name: np.asarray(tensor).tolist() for name, tensor in module.state.items()}
            self.assertEqual(list(read.values()), [[[0, 1], [2, 3]], [4, 5], 7])
            with self.assertRaisesRegex(RuntimeError, "another"):
                tb.Task.load_into(types.SimpleNamespace(parameters={**own, "another": flat}), module)

    def test_rows_in_bfloat16(self):
        with unittest.mock.patch.dict(sys.modules, torch=TORCH):
            rows, labels, width = rows_of(Tensor([[1.0, 2.0]], "bfloat16"), Tensor([1], "int64"))
        self.assertEqual((rows.tolist(), labels.tolist(), width), ([1.0, 2.0], [1], 2))

    @installed("torch")
    def test_pytorch_itself(self):
        import torch

        module = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.BatchNorm1d(2, affine=False)).bfloat16()
        module(torch.ones(3, 2, dtype=torch.bfloat16))
        flat, own = places(**BARE, **{"1__running_var": (2,)})
        copy_into(flat, own, module)
        np.testing.assert_array_equal(own["0.weight"], module[0].weight.detach().float().numpy())
        flat[:] = 0.5
        tb.Task.load_into(types.SimpleNamespace(parameters=own), module)
        self.assertEqual((module[0].weight.sum().item(), module[1].num_batches_tracked.item()), (2.0, 1))

    @installed("jax")
    def test_jax_itself(self):
        import jax.numpy as jnp

        flat, own = places(w=(2, 2), b=(2,))
        copy_into(flat, own, {"w": jnp.full((2, 2), 0.5), "b": jnp.ones(2, jnp.bfloat16)})
        np.testing.assert_array_equal(flat, [0.5, 0.5, 0.5, 0.5, 1, 1])
        with self.assertRaisesRegex(tb.UpdateError, "int32"):
            copy_into(flat, own, {"w": jnp.zeros((2, 2)), "b": jnp.zeros(2, jnp.int32)})


if __name__ == "__main__":
    unittest.main()
