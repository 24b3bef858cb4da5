"""Models as graphs: imported from ONNX files that PyTorch wrote, computed, saved, and trained against a real coordinator."""

import hashlib
import json
import pathlib
import tempfile
import unittest

import numpy as np
import tributary as tb
from federation import federation, line

#: Small networks with outputs and gradients by PyTorch.
FILES = pathlib.Path(__file__).parents[2] / "src" / "train" / "graph" / "imported"
CLEAR = {"secure_aggregation": {"enabled": False}, "training": {"epochs": 3, "batch_size": 16, "learning_rate": 0.05}}
#: Adapters of rank 2 of the network `table`.
ADAPTERS = {"first.weight.lora_a": (2, 7), "first.weight.lora_b": (9, 2)}


def told(name):
    """Inputs, output, weights of the output and gradients of a network, as arrays."""
    said = json.loads((FILES / f"{name}.json").read_text())
    return {key: {name: np.array(value) for name, value in said[key].items()} for key in ("inputs", "gradients")}, said


def table(loss="mse"):
    return tb.import_onnx(FILES / "table.onnx", loss=loss)


def cases(count, seed=1):
    """Inputs of the network `table`, and a number that depends on both."""
    draws = np.random.default_rng(seed)
    numbers, kind = draws.normal(size=(count, 4)), draws.integers(0, 5, count)
    return {"numbers": numbers, "kind": kind}, numbers[:, 0] - 0.5 * kind + 1


class Imports(unittest.TestCase):
    def test_outputs_and_gradients_equal_pytorch(self):
        for name, loss, more in [
            ("table", "mse", {}),
            ("residual", "cross_entropy", {}),
            ("recurrent", "next_token", {}),
            ("transformer", {"kind": "next_token", "ignore": 6}, {"tied": ["embed.weight"]}),
        ]:
            with self.subTest(name):
                model = tb.import_onnx(FILES / f"{name}.onnx", loss=loss, **more)
                arrays, said = told(name)
                count, length = said["batch"], said["length"]
                inputs = {
                    one.name: arrays["inputs"][one.name].reshape([{"batch": count, "length": length}.get(size, size) for size in one.shape])
                    for one in model.inputs
                }
                output = model.predict(inputs)
                expected = np.array(said["output"])
                self.assertEqual((output.dtype, output.size, len(output)), (np.float32, expected.size, count))
                np.testing.assert_allclose(output.reshape(-1), expected, atol=1e-5 * abs(expected).max())
                fed = tb.inputs.feed(model.inputs, inputs)
                found = model._gradient(model._flat(), fed, np.array(said["weights"]))
                self.assertEqual(set(found), set(arrays["gradients"]))
                for key, gradient in found.items():
                    right = arrays["gradients"][key]
                    np.testing.assert_allclose(gradient.reshape(-1), right, atol=1e-4 * max(abs(right).max(), 1e-3))
                self.assertEqual([one.name for one in model.gradients], list(model.tensors))
                self.assertTrue(all(one.gradient and one.shape == model.tensors[one.name].shape for one in model.gradients))

    def test_wrong_files_and_options_are_named(self):
        whole = (FILES / "table.onnx").read_bytes()
        for error, words, file, more in [
            (tb.ModelError, "no ONNX model", b"nothing of the kind", {}),
            (tb.ModelError, "read by 2 nodes", FILES / "transformer.onnx", {"loss": "next_token"}),
            (tb.ModelError, "the loss cross_entropy needs scores", whole, {"loss": "cross_entropy"}),
            (tb.ModelError, "unknown variant `hinge`, expected one of", whole, {"loss": "hinge"}),
            (tb.ModelError, "delta is -1", whole, {"loss": {"kind": "huber", "delta": -1.0}}),
            (tb.ModelError, "output `scores`: no node computes it", whole, {"outputs": ["scores"]}),
            (tb.ConfigurationError, "cannot be read", FILES / "missing.onnx", {}),
            (tb.ConfigurationError, "must be a list of names", whole, {"tied": "embed.weight"}),
            (tb.ConfigurationError, "an option of the import", whole, {"sizes": {"batch": "two"}}),
        ]:
            with self.subTest(words), self.assertRaisesRegex(error, words):
                tb.import_onnx(file, **{"loss": "mse", **more})

    def test_constants_and_new_names_are_kept(self):
        model = tb.import_onnx(FILES / "table.onnx", loss="mse", constants=["kind.weight"], names={"last.bias": "offset"})
        self.assertNotIn("kind.weight", model.tensors)
        self.assertEqual(model.tensors["offset"].shape, (1,))
        self.assertIn("kind.weight", [constant["name"] for constant in model.graph["constants"]])

    def test_saved_files_are_those_of_a_task(self):
        model = table({"kind": "huber", "delta": 0.5})
        with tempfile.TemporaryDirectory() as folder:
            into = model.save(pathlib.Path(folder) / "new")
            self.assertEqual(json.loads((into / "model.graph.json").read_text()), model.graph)
            stored = tb.operator._safetensors((into / "model.safetensors").read_bytes())
            self.assertEqual(list(stored), list(model.tensors))
            for name, array in stored.items():
                np.testing.assert_array_equal(array, model.tensors[name])
            with self.assertRaisesRegex(tb.ConfigurationError, "cannot be written"):
                model.save(into / "model.graph.json")
        self.assertEqual(model.architecture["loss"], {"kind": "huber", "delta": 0.5})

    def test_inputs_that_do_not_fit_are_named(self):
        model = table()
        inputs, _ = cases(3)
        nan = inputs["numbers"].copy()
        nan[2, 1] = np.nan
        for given, words in [
            (inputs["numbers"], "has the inputs numbers, kind: give a mapping"),
            ({"numbers": inputs["numbers"]}, "without 'kind'; the model's are numbers, kind"),
            ({**inputs, "age": [1]}, "with unknown 'age'"),
            ({**inputs, "numbers": inputs["numbers"][:, :3]}, r"'numbers' has the shape \(3, 3\); the model takes \(batch, 4\)"),
            ({**inputs, "kind": inputs["kind"][:2]}, "'numbers' has 3, 'kind' has 2"),
            ({**inputs, "kind": inputs["kind"] / 2}, "'kind' is an array of float64; it must be of whole numbers"),
            ({**inputs, "numbers": inputs["numbers"].astype(str)}, "'numbers' is an array of <U"),
            ({**inputs, "numbers": nan}, r"'numbers' has nan at \[2, 1\]"),
            ({**inputs, "numbers": inputs["numbers"] * 1e300}, "is no finite number of 32 bits"),
            ({**inputs, "kind": np.full(3, 2**63, np.uint64)}, "no integer of 64 bits"),
            ({**inputs, "kind": [0, 1, 9]}, r"takes integers from 0 to 4 as its input `kind`, not 9 \(example 2\)"),
            ({name: array[:0] for name, array in inputs.items()}, "there are no examples"),
            ({**inputs, "kind": [[0], [1, 2], [3]]}, "'kind' is nothing that NumPy makes an array of"),
        ]:
            with self.subTest(words), self.assertRaisesRegex(tb.UpdateError, words):
                model.predict(given)
        expected = model.predict(inputs)
        self.assertEqual(expected.shape, (3, 1))
        for numbers in (inputs["numbers"].astype(">f8"), np.asfortranarray(inputs["numbers"]), inputs["numbers"].tolist()):
            np.testing.assert_array_equal(model.predict({"numbers": numbers, "kind": inputs["kind"].astype("i2")}), expected)

    def test_single_input_takes_the_array_and_flat_rows(self):
        model = tb.import_onnx(FILES / "residual.onnx")
        images = np.random.default_rng(1).normal(size=(70, 1, 6, 6))
        expected = model.predict({"x": images})
        self.assertEqual(expected.shape, (70, 3))
        for same in (images, images[:, 0], images.reshape(70, 36)):
            np.testing.assert_array_equal(model.predict(same), expected)
        with self.assertRaisesRegex(tb.UpdateError, r"'x' has the shape \(70, 4, 9\)"):
            model.predict(images.reshape(70, 4, 9))
        tokens = tb.import_onnx(FILES / "recurrent.onnx", loss="next_token")
        self.assertEqual(tokens.predict(np.zeros((2, 9), int)).shape, (2, 9, 6))
        with self.assertRaisesRegex(tb.UpdateError, r"the model takes \(batch, length\)"):
            tokens.predict(np.zeros(9, int))


class Trains(unittest.TestCase):
    def test_regression_with_two_inputs_is_trained_and_used(self):
        model, (inputs, targets) = table(), cases(64)
        held_out = cases(32, seed=2)
        with federation() as running:
            running.operator.create({**line("table", rounds=3, cohort=1, **CLEAR), "model": {}, "metrics": ["loss"]}, model=model)
            options = {**running.options("table", task="table"), "secure_aggregation": {"required": False}}
            with tb.participant(**options) as me:
                for task in me.tasks():
                    if task.round == 1:
                        for name, array in task.parameters.items():
                            np.testing.assert_array_equal(array, model.tensors[name])
                    self.refuses(task, inputs, targets)
                    self.assertTrue(task.train(inputs, targets, held_out=held_out))
                    self.assertEqual(me.examples, 64)
                kept = me.model("table")
            losses = [round["metrics"]["loss"]["value"] for round in running.operator.rounds("table")]
            published = running.operator.model("table")
        error = float(np.mean((model.predict(held_out[0])[:, 0] - held_out[1]) ** 2))
        self.assertAlmostEqual(losses[0], error, delta=1e-3 * error)
        self.assertLess(losses[2], 0.8 * losses[0])
        self.assertEqual((kept.version, list(published)), (3, list(model.tensors)))
        model.tensors = published
        np.testing.assert_array_equal(kept.predict(inputs), model.predict(inputs))
        with self.assertRaisesRegex(tb.UpdateError, "without 'kind'"):
            kept.predict({"numbers": inputs["numbers"]})

    def refuses(self, task, inputs, targets):
        """Nothing is sent of examples that do not fit."""
        for given, right, words in [
            ({"numbers": inputs["numbers"]}, targets, "without 'kind'"),
            (inputs, targets[1:], r"64 examples, and targets of the shape \(63,\)"),
            (inputs, np.stack([targets, targets], axis=1), "got 128 targets where 64 were expected"),
            (inputs, targets.astype(str), "with mse they must be numbers"),
            (inputs, np.where(targets > 0, targets, np.inf), "targets have inf at"),
        ]:
            with self.assertRaisesRegex(tb.UpdateError, words):
                task.train(given, right)

    def test_shared_adapters_train_on_a_brought_base(self):
        model, (inputs, targets) = table(), cases(64)
        lora = {"method": "lora", "adapters": "shared", "layers": ["first.weight"], "rank": 2, "alpha": 4.0}
        with federation() as running:
            base = model.save(running.folder / "base") / "model.safetensors"
            spec = {**line("table", cohort=1, **CLEAR), "model": {}, "personalization": lora, "metrics": ["train_loss"]}
            running.operator.create(spec, model=model)
            stored = running.operator.task("table")["spec"]
            options = {**running.options("table", task="table"), "secure_aggregation": {"required": False}}
            with tb.participant(**options, base_model=base, trains_adapters=True) as me:
                for task in me.tasks():
                    self.assertEqual({name: array.shape for name, array in task.parameters.items()}, ADAPTERS)
                    np.testing.assert_array_equal(task.base.parameters["kind.weight"], model.tensors["kind.weight"])
                    self.assertTrue(task.train(inputs, targets))
            published = running.operator.model("table")
            losses = [round["metrics"]["train_loss"]["value"] for round in running.operator.rounds("table")]
        self.assertEqual(stored["personalization"]["base_sha256"], hashlib.sha256(base.read_bytes()).hexdigest())
        self.assertNotIn("initial", stored["model"])
        self.assertEqual({name: array.shape for name, array in published.items()}, ADAPTERS)
        self.assertGreater(abs(published["first.weight.lora_b"]).max(), 0)
        self.assertLess(losses[1], losses[0])

    def test_next_token_of_a_task_file_takes_whole_numbers(self):
        model = tb.import_onnx(FILES / "recurrent.onnx", loss="next_token")
        tokens = np.arange(240).reshape(24, 10) % 6
        with federation() as running, tempfile.TemporaryDirectory() as folder:
            model.save(folder)
            spec = line("tokens", rounds=2, cohort=1, **CLEAR)
            spec["model"] = {"graph": "model.graph.json", "initial": "model.safetensors", "loss": {"kind": "next_token"}}
            spec["metrics"] = ["loss", "accuracy"]
            file = pathlib.Path(folder) / "task.json"
            file.write_text(json.dumps(spec))
            running.operator.create(file)
            options = {**running.options("tokens", task="tokens"), "secure_aggregation": {"required": False}}
            with tb.participant(**options) as me:
                for task in me.tasks():
                    with self.assertRaisesRegex(tb.UpdateError, "with next_token they must be classes"):
                        task.train(tokens[:, :-1], tokens[:, 1:] / 2)
                    with self.assertRaisesRegex(tb.UpdateError, "the label [67]"):
                        task.train(tokens[:, :-1], tokens[:, 1:] + 2)
                    self.assertTrue(task.train({"tokens": tokens[:, :-1]}, tokens[:, 1:], held_out=(tokens[:4, :-1], tokens[:4, 1:])))
                scores = me.model("tokens").predict(tokens[:, :-1])
            metrics = [round["metrics"] for round in running.operator.rounds("tokens")]
        self.assertEqual(scores.shape, (24, 9, 6))
        self.assertLess(metrics[1]["loss"]["value"], metrics[0]["loss"]["value"])
        self.assertTrue(0 <= metrics[1]["accuracy"]["value"] <= 1)

    def test_operator_refuses_two_architectures_and_missing_files(self):
        operator = tb.Operator("https://127.0.0.1:1", "token")
        mlp = {"name": "x", "model": {"architecture": {"kind": "mlp"}}}
        with self.assertRaisesRegex(tb.ConfigurationError, "brings another"):
            operator.create(mlp, model=table())
        with self.assertRaisesRegex(tb.ConfigurationError, "model.graph: missing.json cannot be read"):
            operator.create({"name": "x", "model": {"graph": "missing.json"}})


if __name__ == "__main__":
    unittest.main()
