"""Modules of PyTorch as models that tasks carry: `task_from`."""

import unittest
import unittest.mock

import numpy as np
import tributary as tb
from federation import federation, installed, line

PARTS = ("torch", "onnx", "onnxscript")


class Missing(unittest.TestCase):
    def test_missing_packages_are_named(self):
        with unittest.mock.patch("importlib.util.find_spec", lambda name: None if name == "onnxscript" else object()):
            with self.assertRaisesRegex(tb.ConfigurationError, "needs onnxscript: pip install onnxscript"):
                tb.task_from(None, None)


@installed(*PARTS)
class Modules(unittest.TestCase):
    def setUp(self):
        import torch

        torch.manual_seed(1)
        self.torch = torch

    def classifier(self):
        """A network with what exporters get wrong: equal parameters, batch normalization, dropout, a frozen part, a buffer."""
        torch, nn = self.torch, self.torch.nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
                self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
                self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
                self.drop, self.last = nn.Dropout(0.2), nn.Linear(16, 3)
                self.register_buffer("shift", torch.linspace(0, 1, 16))

            def forward(self, x):
                x = nn.functional.adaptive_avg_pool2d(torch.relu(self.norm(self.first(x))), 2).flatten(1) + self.shift
                for block, norm in zip(self.blocks, self.norms):
                    x = x + block(norm(x))
                return self.last(self.drop(x))

        net = Net()
        net.blocks[1].load_state_dict(net.blocks[0].state_dict())
        net.first.weight.requires_grad_(False)
        return net

    def test_classifier_keeps_names_values_and_state(self):
        torch, net = self.torch, self.classifier()
        images = torch.randn(5, 1, 6, 6)
        net(images)  # Moves the running statistics.
        before = {name: value.clone() for name, value in net.state_dict().items()}
        model = tb.task_from(net, images)
        self.assertTrue(net.training and net.drop.training)
        for name, value in net.state_dict().items():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)
        trained = [name for name, value in net.named_parameters() if value.requires_grad]
        self.assertEqual(sorted(model.tensors), sorted(trained))
        for name in trained:
            np.testing.assert_array_equal(model.tensors[name], before[name].numpy())
        told = "\n".join(model.warnings)
        self.assertIn("'norm' uses its running statistics", told)
        self.assertIn("the dropout of 'drop' is left out", told)
        one = torch.randn(1, 1, 6, 6)
        with torch.no_grad():
            expected = net.eval()(one).numpy()
        np.testing.assert_allclose(model.predict(one), expected, atol=1e-5)

    def test_regression_by_name_is_trained_and_loaded_again(self):
        torch, nn = self.torch, self.torch.nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.kind, self.first, self.last = nn.Embedding(5, 3), nn.Linear(7, 9), nn.Linear(9, 1)

            def forward(self, numbers, kind):
                return self.last(torch.tanh(self.first(torch.cat([numbers, self.kind(kind)], 1))))

        net = Net()
        inputs = {"numbers": torch.randn(64, 4), "kind": torch.randint(5, (64,))}
        targets = inputs["numbers"][:, 0] - 0.5 * inputs["kind"]
        model = tb.task_from(net, {name: value[:1] for name, value in inputs.items()}, loss="mse")
        self.assertEqual([one.name for one in model.inputs], ["numbers", "kind"])
        with federation() as running:
            plan = {"secure_aggregation": {"enabled": False}, "training": {"epochs": 5, "learning_rate": 0.05}}
            running.operator.create({**line("own", rounds=2, cohort=1, **plan), "model": {}, "metrics": []}, model=model)
            options = {**running.options("own", task="own"), "secure_aggregation": {"required": False}}
            with tb.participant(**options) as me:
                for task in me.tasks():
                    self.assertTrue(task.train(inputs, targets))
                predicted = me.model("own").predict(inputs)
            version = running.operator.model("own")
        with torch.no_grad():
            before = float(((net(**inputs)[:, 0] - targets) ** 2).mean())
            net.load_state_dict({name: torch.from_numpy(value) for name, value in version.items()})
            output = net(**inputs)
            after = float(((output[:, 0] - targets) ** 2).mean())
        np.testing.assert_allclose(predicted, output.numpy(), atol=1e-5)
        self.assertLess(after, 0.5 * before)

    def test_batch_statistics_are_compared_averaged_and_loaded_again(self):
        torch, nn = self.torch, self.torch.nn
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=0.2), nn.ReLU(), nn.Linear(8, 2))
        rows = torch.randn(96, 4) * 3 + 1
        classes = (rows[:, 0] > rows[:, 1]).long()
        before = {name: value.clone() for name, value in net.state_dict().items()}
        model = tb.task_from(net, rows[:16], batch_norm="averaged")
        self.assertTrue(all(part.training for part in net.modules()))
        for name, value in net.state_dict().items():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)
        self.assertEqual((model.batch_norm, model.warnings), ("averaged", []))
        self.assertEqual(sorted(model.tensors), sorted(name for name in before if name != "1.num_batches_tracked"))
        norm = next(node["do"]["batch_norm"] for node in model.graph["nodes"] if "batch_norm" in node["do"])
        self.assertAlmostEqual(norm["momentum"], 0.2)
        with federation() as running:
            plan = {"secure_aggregation": {"enabled": False}, "training": {"epochs": 8, "learning_rate": 0.1}}
            task = {**line("own", rounds=2, cohort=1, **plan), "model": {}, "metrics": []}
            with self.assertRaisesRegex(tb.Error, "model.batch_norm"):
                running.operator.create({**task, "model": {"batch_norm": "frozen"}}, model=model)
            running.operator.create(task, model=model)
            options = {**running.options("own", task="own"), "secure_aggregation": {"required": False}}
            with tb.participant(**options) as me:
                for job in me.tasks():
                    self.assertTrue(job.train(rows, classes))
            version = running.operator.model("own")
        net.load_state_dict({name: torch.from_numpy(value) for name, value in version.items()})
        with torch.no_grad():
            mean = net[0](rows).mean(0)
            right = float((net.eval()(rows).argmax(1) == classes).float().mean())
        self.assertGreater(right, 0.85)
        self.assertLess(float((net[1].running_mean - mean).abs().max()), 0.75)

    def test_local_statistics_become_personal(self):
        torch, nn = self.torch, self.torch.nn
        net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2))
        model = tb.task_from(net, torch.randn(4, 1, 6, 6), batch_norm="local")
        with federation() as running:
            spec = {**line("own", rounds=1, cohort=1, secure_aggregation={"enabled": False}), "model": {}, "metrics": []}
            running.operator.create(spec, model=model)
            about = running.operator.task("own")["spec"]["model"]
            self.assertEqual((about["batch_norm"], about["personal"]), ("local", ["*running_mean", "*running_var"]))
            version = running.operator.model("own")
        self.assertNotIn("1.running_mean", version)
        self.assertIn("1.weight", version)

    def test_batch_statistics_that_cannot_be_are_named(self):
        torch, nn = self.torch, self.torch.nn
        norm = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))
        for module, rows, mode, error, why in (
            (norm, 8, "averaged", tb.ModelError, "'1' has momentum=None"),
            (nn.Linear(4, 2), 8, "local", tb.ModelError, "no batch normalization with running statistics"),
            (nn.Sequential(nn.BatchNorm1d(4)), 1, "local", tb.ConfigurationError, "an example of 2 rows or more"),
            (norm, 8, "batch", tb.ConfigurationError, "one of frozen, local, averaged"),
        ):
            with self.assertRaisesRegex(error, why):
                tb.task_from(module, torch.randn(rows, 4), batch_norm=mode)

    def test_tied_weights_of_any_length_train_as_one(self):
        torch, nn = self.torch, self.torch.nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(7, 8), nn.Linear(8, 7, bias=False)
                self.head.weight = self.embed.weight

            def forward(self, tokens):
                return self.head(torch.tanh(self.embed(tokens)))

        net, tokens = Net(), torch.randint(7, (3, 5))
        model = tb.task_from(net, tokens, loss="next_token", length={"tokens": 1})
        self.assertEqual(list(model.tensors), ["embed.weight"])
        self.assertEqual(model.inputs[0].shape, ("batch", "length"))
        longer = torch.randint(7, (2, 11))
        with torch.no_grad():
            np.testing.assert_allclose(model.predict(longer), net(longer).numpy(), atol=1e-5)

    def test_modules_and_examples_that_do_not_fit_are_named(self):
        torch, nn = self.torch, self.torch.nn
        net, rows = nn.Linear(4, 2), torch.randn(3, 4)
        frozen = nn.Linear(4, 2).requires_grad_(False)
        infinite = nn.Linear(4, 2)
        infinite.bias.data[0] = torch.inf
        for error, words, module, example, more in [
            (tb.ConfigurationError, "is no torch.nn.Module", torch.relu, rows, {}),
            (tb.ConfigurationError, "does not fit Linear.forward", net, (rows, rows), {}),
            (tb.ConfigurationError, "'input' is a ndarray; it must be a tensor", net, rows.numpy(), {}),
            (tb.ConfigurationError, "of torch.float64; it must be of float32", net, rows.double(), {}),
            (tb.ConfigurationError, "at least one", net, rows[:0], {}),
            (tb.ConfigurationError, "names an axis from 1 on", net, rows, {"length": {"tokens": 1}}),
            (tb.ModelError, "has no parameter that trains", frozen, rows, {}),
            (tb.ModelError, "'weight' is of torch.float64", nn.Linear(4, 2).double(), rows, {}),
            (tb.ModelError, "'bias' has a value that is not finite", infinite, rows, {}),
        ]:
            with self.subTest(words), self.assertRaisesRegex(error, words):
                tb.task_from(module, example, **more)

    def test_lost_parameters_and_wrong_gradients_are_refused(self):
        torch, nn = self.torch, self.torch.nn

        class Unused(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.unused = nn.Linear(4, 2), nn.Linear(4, 2)

            def forward(self, x):
                return self.used(x)

        net = Unused()
        before = net.used.weight.clone()
        with self.assertRaisesRegex(tb.ModelError, "lacks the parameters 'unused.weight', 'unused.bias'"):
            tb.task_from(net, torch.randn(3, 4))
        torch.testing.assert_close(net.used.weight, before, rtol=0, atol=0)

        class Cut(nn.Module):
            """PyTorch's own gradient of the first layer is cut; the exporter drops the cut."""

            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

            def forward(self, x):
                return self.last(self.first(x).detach())

        with self.assertRaisesRegex(tb.ModelError, "the gradient of 'first"):
            tb.task_from(Cut(), torch.randn(3, 4))


if __name__ == "__main__":
    unittest.main()
