"""Models whose arrays are nested, as JAX and Flax have them. What needs JAX says so and is skipped."""

import collections
import collections.abc
import types
import unittest

import numpy as np
import tributary as tb
from federation import installed
from tributary.update import copy_into

Layer = collections.namedtuple("Layer", ["kernel", "bias"])


class Frozen(collections.abc.Mapping):
    """As Flax's FrozenDict."""

    def __init__(self, inner):
        self.inner = dict(inner)

    def __getitem__(self, key):
        return self.inner[key]

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)


def model(*shapes):
    """A flat vector that counts from 0, and its tensors by name."""
    sizes = [int(np.prod(shape)) for _, shape in shapes]
    flat = np.arange(sum(sizes), dtype="f4")
    return flat, {name: part.reshape(shape) for (name, shape), part in zip(shapes, np.split(flat, np.cumsum(sizes)[:-1]))}


def like(own, tree):
    return tb.Task.parameters_like(types.SimpleNamespace(parameters=own), tree)


def zeros(*shape):
    return np.zeros(shape, "f4")


TREES = [
    (
        "dictionaries",
        ("hidden.kernel", "hidden.bias", "out.w"),
        {"hidden": {"kernel": zeros(2, 3), "bias": zeros(3)}, "out": {"w": zeros(3)}},
    ),
    (
        "of Flax",
        ("params/Dense_0/kernel", "params/Dense_0/bias", "stats/mean"),
        Frozen(
            {
                "params": Frozen({"Dense_0": {"kernel": zeros(2, 3), "bias": zeros(3)}}),
                "stats": {"mean": zeros(3), "dropout": {}},
            }
        ),
    ),
    (
        "of Haiku",
        ("mlp/~/linear_0/w", "mlp/~/linear_0/b", "mlp/~/linear_1/w"),
        {"mlp/~/linear_0": {"w": zeros(2, 3), "b": zeros(3)}, "mlp/~/linear_1": {"w": zeros(3), "b": None}},
    ),
    ("tuples in a list", ("0.0", "0.1", "1.0"), [(zeros(2, 3), zeros(3)), (zeros(3),)]),
    ("dictionaries in a list", ("0.w", "0.b", "1.w"), [{"w": zeros(2, 3), "b": zeros(3)}, {"w": zeros(3)}]),
    (
        "named tuples",
        ("layers.0.kernel", "layers.0.bias", "layers.1.kernel"),
        {"layers": [Layer(zeros(2, 3), zeros(3)), Layer(zeros(3), None)]},
    ),
    (
        "numbers as keys",
        ("7.a", "7.b", "8.a"),
        collections.OrderedDict({7: {"a": zeros(2, 3), "b": zeros(3)}, 8: {"a": zeros(3)}}),
    ),
]


class Nested(unittest.TestCase):
    def test_what_is_received_comes_back_in_the_same_nesting(self):
        for what, names, tree in TREES:
            with self.subTest(what):
                flat, own = model(*zip(names, [(2, 3), (3,), (3,)]))
                received = like(own, tree)
                self.assertIs(type(received), type(tree))
                sent, places = model(*zip(names, [(2, 3), (3,), (3,)]))
                sent[:] = -1
                copy_into(sent, places, received)
                np.testing.assert_array_equal(sent, flat)
                # A tree of another's arrays is no part of the model, and stays as it is.
                sent[:] = -1
                copy_into(sent, places, tree)
                np.testing.assert_array_equal(sent, 0)

    def test_each_array_has_the_precision_of_its_place(self):
        flat, own = model(("a.half", (2,)), ("a.double", (2,)), ("a.single", (2,)), ("a.count", (2,)))
        tree = {"a": {"half": np.zeros(2, "f2"), "double": np.zeros(2), "single": zeros(2), "count": np.zeros(2, "i4")}}
        received = like(own, tree)["a"]
        self.assertEqual([str(array.dtype) for array in received.values()], ["float16", "float64", "float32", "float32"])
        received["single"] += 1  # in place
        received["double"] += 1
        self.assertEqual((flat[2:4].tolist(), flat[4:6].tolist()), ([2, 3], [5, 6]))
        np.testing.assert_array_equal(tree["a"]["single"], 0)
        self.assertEqual(like(own, {"a": dict.fromkeys(tree["a"], types.SimpleNamespace(shape=(2,), dtype=None))})["a"]["half"].tolist(), [0, 1])

    def test_other_names_and_shapes_are_told(self):
        flat, own = model(("a.w", (2, 3)), ("a.b", (3,)))
        for tree, words in [
            ({"a": {"w": zeros(2, 3)}}, "'a.b' have no place"),
            ({"a": {"w": zeros(2, 3), "b": zeros(3), "c": zeros(1)}}, "no tensor 'a.c'"),
            ({"a": {"w": zeros(3, 2), "b": zeros(3)}}, r"'a.w' has the shape \(2, 3\), and its place \(3, 2\)"),
            ([zeros(2, 3), zeros(3)], "'a.b', 'a.w' have no place"),
            (3, "have no place"),
        ]:
            with self.subTest(tree=tree), self.assertRaisesRegex(tb.UpdateError, words):
                like(own, tree)
        for update, words in [
            ({"a": {"w": zeros(2, 3)}}, "without 'a.b'"),
            ({"a": {"w": zeros(2, 3), "b": zeros(3), "c": zeros(1)}}, "with unknown 'a.c'"),
            ({"a": {"w": zeros(2, 3), "b": None}}, "'a.b' is of object"),
            ({"a": {"w": zeros(2, 3), "b": zeros(3)}, "a.b": zeros(3)}, "'a.b' twice"),
            ({"a": {"w": zeros(2, 3), "b": [0.0, [1.0], 2.0]}}, "tensor 'a.b' is nothing"),
            ({"a": {"w": zeros(2, 3), "b": zeros(3)}, 3: [0.0, 1.0]}, "with unknown '3'"),
            ([(zeros(2, 3), zeros(3))], "without 'a.b', 'a.w' and with unknown '0'"),
        ]:
            with self.subTest(update=update), self.assertRaisesRegex(tb.UpdateError, words):
                copy_into(flat, own, update)
        np.testing.assert_array_equal(flat, np.arange(9))

    def test_nested_lists_of_numbers_are_arrays(self):
        flat, own = model(("w", (2, 2)), ("b", (2,)))
        copy_into(flat, own, {"w": [[1.0, 2.0], (3.0, 4.0)], "b": [5.0, 6.0]})
        np.testing.assert_array_equal(flat, [1, 2, 3, 4, 5, 6])
        copy_into(flat, own, [[[1.0, 1.0], [1.0, 1.0]], [2.0, 2.0]])
        np.testing.assert_array_equal(flat, [1, 1, 1, 1, 2, 2])

    @installed("jax")
    def test_jax_itself(self):
        import jax
        import jax.numpy as jnp

        flat, own = model(("layers.0.w", (2, 3)), ("layers.0.b", (3,)), ("scale", ()))
        params = {"layers": [{"w": jnp.zeros((2, 3)), "b": jnp.zeros(3, jnp.bfloat16)}], "scale": jnp.zeros(())}
        received = like(own, params)
        self.assertEqual(jax.tree.structure(received), jax.tree.structure(params))
        self.assertEqual([leaf.dtype for leaf in jax.tree.leaves(received)], [leaf.dtype for leaf in jax.tree.leaves(params)])
        self.assertTrue(all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(received)))
        flat += 1  # What was received is a copy.
        np.testing.assert_array_equal(received["layers"][0]["w"], np.arange(6).reshape(2, 3))
        copy_into(flat, own, jax.tree.map(lambda leaf: leaf * 2, received))
        np.testing.assert_array_equal(flat, np.arange(10) * 2)
        shapes = jax.eval_shape(lambda: params)
        self.assertIs(type(like(own, shapes)["scale"]), np.ndarray)


if __name__ == "__main__":
    unittest.main()
