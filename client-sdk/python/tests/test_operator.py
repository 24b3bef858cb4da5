"""What an operator makes of a task's rounds: frames, plots, and rounds as they end."""

import datetime
import os
import time
import unittest
import unittest.mock

import tributary as tb
from federation import federation, installed, line

CLEAR = {"secure_aggregation": {"enabled": False}, "metrics": ["accuracy", "train_loss"]}


def take_part(running, name):
    options = {**running.options(name, task=name), "secure_aggregation": {"required": False}}
    with tb.participant(**options) as me:
        for task in me.tasks():
            task.send(task.parameters, examples=4, metrics={"accuracy": task.round / 4, "train_loss": 1 / task.round})


class Operators(unittest.TestCase):
    def test_a_file_with_an_architecture_or_a_table_is_completed(self):
        digits = """
            name = "digits"
            [model.architecture]
            kind = "mlp"
            inputs = 784
            hidden = [20]
            classes = 10
        """
        wards = """
            name = "wards"
            [model]
            architecture = { kind = "linear" }
            table = { features = [{ column = "age", low = 0, high = 120 }, { column = "ward", one_of = ["icu", "general"] }], label = { column = "back", one_of = ["no", "yes"] } }
        """
        with federation() as running:
            folder = running.folder
            (folder / "digits.toml").write_text(digits)
            (folder / "wards.toml").write_text(wards)
            shapes = {}
            for name in ("digits", "wards"):
                running.operator.create(folder / f"{name}.toml")
                shapes[name] = {tensor: array.shape for tensor, array in running.operator.model(name, 0).items()}
            running.operator.create({"name": "mapped", "model": {"architecture": {"kind": "mlp", "hidden": [20]}}})
            self.assertEqual(shapes["digits"], {"fc1.weight": (20, 784), "fc1.bias": (20,), "fc2.weight": (10, 20), "fc2.bias": (10,)})
            self.assertEqual({array.shape for array in running.operator.model("wards", 0).values()}, {(2, 3), (2,)}, shapes)
            mapped = {tensor: array.shape for tensor, array in running.operator.model("mapped", 0).items()}
            self.assertEqual(mapped, shapes["digits"])
            with self.assertRaisesRegex(tb.ConfigurationError, "model.architecture unknown variant `resnet`"):
                running.operator.create({"name": "other", "model": {"architecture": {"kind": "resnet"}}})
            with self.assertRaisesRegex(tb.Problem, "modle"):
                running.operator.create({"name": "other", "modle": {}})

    def test_task_starts_from_a_given_model(self):
        import numpy as np

        weights = {"layer": {"w": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.ones(2)}, "steps": np.int64(7)}
        with federation() as running:
            op = running.operator
            created = op.create({"name": "own"}, model=weights)
            self.assertRegex(created["spec"]["model"]["initial"], "^sha256:[0-9a-f]{64}$")
            first = op.model("own", 0)
            self.assertEqual(list(first), ["layer.w", "layer.b"])
            np.testing.assert_array_equal(first["layer.w"], [[0, 1, 2], [3, 4, 5]])
            np.testing.assert_array_equal(first["layer.b"], [1, 1])
            # The file of a version, named in a task file beside it.
            folder = running.folder
            (folder / "own.safetensors").write_bytes(op.request("GET", "/v1/tasks/own/models/0/parameters"))
            (folder / "again.json").write_text('{"name": "again", "model": {"initial": "own.safetensors"}}')
            op.create(folder / "again.json")
            np.testing.assert_array_equal(op.model("again", 0)["layer.w"], first["layer.w"])
            op.create({"name": "on", "model": {"tensors": created["spec"]["model"]["tensors"], "initial": {"task": "own"}}})
            np.testing.assert_array_equal(op.model("on", 0)["layer.b"], first["layer.b"])
            with self.assertRaisesRegex(tb.Problem, "layer.w"):
                op.create({"name": "other", "model": {"architecture": {"kind": "mlp", "hidden": [20]}}}, model=weights)
            with self.assertRaisesRegex(tb.ConfigurationError, "absent.safetensors cannot be read"):
                op.create({"name": "other"}, model=folder / "absent.safetensors")
            with self.assertRaisesRegex(tb.ConfigurationError, "no model"):
                op.create({"name": "other"}, model={"steps": 7})

    def test_preset_with_settings_and_a_model_becomes_a_task(self):
        weights = {"w": [[0.0, 1.0]]}
        with federation() as running:
            op = running.operator
            self.assertIn("compressed", op.presets())
            created = op.create("compressed", model=weights, set={"rounds.count": 3, "selection.cohort": {"count": 12}})
            self.assertEqual(created["name"], "compressed")
            self.assertEqual((created["spec"]["rounds"]["count"], created["spec"]["selection"]["cohort"]), (3, {"count": 12}))
            self.assertEqual(created["spec"]["compression"]["codec"], op.presets()["compressed"]["compression"]["codec"])
            self.assertEqual(op.model("compressed", 0)["w"].tolist(), [[0, 1]])
            self.assertEqual(op.create("compressed", model=weights, set={"name": "mine"})["name"], "mine")
            given = line("given")
            changed = op.create(given, set={"training.learning_rate": 0.5, "training.optimizer.name": "adamw"})
            self.assertEqual((changed["spec"]["training"]["learning_rate"], given["training"]), (0.5, {"epochs": 5, "learning_rate": 0.05}))
            with self.assertRaisesRegex(tb.ConfigurationError, "neither a file nor a preset 'absent'; presets are asynchronous, compressed"):
                op.create("absent", model=weights)

    def test_environment_names_the_coordinator(self):
        with federation() as running:
            known = {"TRIBUTARY_SERVER": running.url, "TRIBUTARY_CA": running.ca, "TRIBUTARY_TOKEN": running.token}
            with unittest.mock.patch.dict(os.environ, known):
                self.assertEqual(tb.Operator().tasks(), [])
            with unittest.mock.patch.dict(os.environ):
                os.environ.pop("TRIBUTARY_SERVER", None)
                with self.assertRaisesRegex(tb.ConfigurationError, "set TRIBUTARY_SERVER"):
                    tb.Operator(token="token")

    def test_task_is_paused_resumed_and_a_version_promoted(self):
        with federation() as running:
            op = running.operator
            op.create(line("steered", rounds=2, cohort=1, **CLEAR))
            self.assertEqual(op.pause("steered")["status"], "PAUSED")
            self.assertEqual(op.resume("steered")["status"], "ACTIVE")
            take_part(running, "steered")
            self.assertEqual(op.promote("steered", 1)["promoted_version"], 1)
            self.assertEqual(op.model("steered", promoted=True)["b"].tolist(), [0, 0])
            private = line("ledger", cohort=10, privacy={"mechanism": "distributed_discrete_gaussian", "epsilon": 8.0, "delta": 1e-5})
            private["privacy"]["clip"] = {"fixed": 1.0}
            private.pop("metrics")
            op.create(private)
            self.assertEqual(op.privacy("ledger")["spec"]["epsilon"], 8.0)

    def test_task_starts_from_a_file_of_several_parts(self):
        import numpy as np

        with federation() as running:
            large = np.random.default_rng(1).normal(size=5 << 20).astype(np.float32)
            running.operator.create({"name": "large"}, model={"w": large})
            np.testing.assert_array_equal(running.operator.model("large", 0)["w"], large)

    @installed("torch")
    def test_task_starts_from_a_module(self):
        import torch

        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
        with federation() as running:
            running.operator.create({"name": "net"}, model=net)
            first = running.operator.model("net", 0)
            floats = {name: value for name, value in net.state_dict().items() if value.is_floating_point()}
            self.assertEqual(list(first), list(floats))
            for name, value in floats.items():
                self.assertEqual(first[name].tolist(), value.tolist(), name)

    @installed("pandas")
    def test_rounds_as_a_frame(self):
        import pandas as pd

        before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
        with federation() as running:
            running.operator.create(line("framed", rounds=2, cohort=1, **CLEAR))
            running.operator.create(line("waiting", rounds=1))
            take_part(running, "framed")
            frame = running.operator.frame("framed")
            self.assertEqual((frame.index.name, list(frame.index)), ("number", [1, 2]))
            self.assertEqual(list(frame["metrics.accuracy.value"]), [0.25, 0.5])
            self.assertEqual(list(frame["state"]), ["COMPLETED", "COMPLETED"])
            times = [name for name in frame.columns if name.endswith("_at")]
            self.assertIn("ended_at", times)
            after = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
            for name in times:
                self.assertEqual(str(frame[name].dtype.tz), "UTC", name)
            self.assertTrue(frame["ended_at"].between(pd.Timestamp(before), pd.Timestamp(after)).all(), frame["ended_at"])
            self.assertTrue(frame["ended_at"].is_monotonic_increasing)
            while not running.operator.rounds("waiting"):
                time.sleep(0.01)
            waiting = running.operator.frame("waiting")
            self.assertEqual((list(waiting["state"]), str(waiting["ended_at"].dtype.tz)), (["SELECTING"], "UTC"))
            self.assertTrue(waiting["ended_at"].isna().all() and "metrics.accuracy.value" not in waiting.columns)
            with unittest.mock.patch.object(tb.Operator, "rounds", return_value=[]):
                self.assertTrue(running.operator.frame("waiting").empty)
            with self.assertRaises(tb.Problem):
                running.operator.frame("absent")

    @installed("pandas")
    def test_rounds_are_watched_as_frames(self):
        with federation() as running:
            running.operator.create(line("frames", rounds=2, cohort=1, **CLEAR))
            watch = running.operator.watch("frames", frame=True)
            take_part(running, "frames")
            seen = list(watch)
            # One or two looks, as it happens; every one shows all rounds so far.
            self.assertEqual([list(frame.index) for frame in seen][-1], [1, 2])
            self.assertTrue(all(len(frame) <= len(after) for frame, after in zip(seen, seen[1:])))
            self.assertTrue(seen[-1].equals(running.operator.frame("frames")))
            self.assertEqual(list(running.operator.watch("frames", frame=True)), [], "they ended before")

    def test_each_look_that_finds_an_end_is_a_frame_of_all_rounds(self):
        def at(*states):
            return [{"number": number, "attempt": 1, "state": state} for number, state in enumerate(states, 1)]

        looks = [at("COMPLETED"), at("COMPLETED", "COLLECTING"), at("COMPLETED", "FAILED", "SELECTING"), at("COMPLETED", "FAILED", "COMPLETED")]
        operator = tb.Operator("https://localhost:1", "token")
        frames = unittest.mock.patch("tributary.operator._frame", side_effect=lambda rounds: [round["state"] for round in rounds])
        for frame, told in [
            (False, [(2, "FAILED"), (3, "COMPLETED")]),
            (True, [["COMPLETED", "FAILED", "SELECTING"], ["COMPLETED", "FAILED", "COMPLETED"]]),
        ]:
            with (
                unittest.mock.patch.object(operator, "rounds", side_effect=looks),
                unittest.mock.patch.object(operator, "task", side_effect=[{"status": "ACTIVE"}] * 2 + [{"status": "COMPLETED"}]),
                unittest.mock.patch.object(operator, "_wait"),
                frames,
            ):
                watched = list(operator.watch("task", frame=frame))
            self.assertEqual(watched if frame else [(round["number"], round["state"]) for round in watched], told)

    @installed("matplotlib")
    def test_a_metric_as_a_plot(self):
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        with federation() as running:
            running.operator.create(line("plotted", rounds=2, cohort=1, **CLEAR))
            with self.assertRaisesRegex(tb.Error, "no round of plotted has a metric"):
                running.operator.plot("plotted")
            take_part(running, "plotted")
            axes = running.operator.plot("plotted")
            self.assertEqual(axes.lines[0].get_xydata().tolist(), [[1, 1], [2, 0.5]])
            self.assertEqual((axes.get_xlabel(), axes.get_ylabel(), axes.get_title()), ("round", "train_loss", "plotted"))
            own = plt.figure().add_subplot()
            self.assertIs(running.operator.plot("plotted", metric="accuracy", ax=own), own)
            self.assertEqual(own.lines[0].get_ydata().tolist(), [0.25, 0.5])
            with self.assertRaisesRegex(tb.Error, "no round of plotted has the metric 'loss'; there are accuracy, train_loss"):
                running.operator.plot("plotted", metric="loss")
            running.operator.create(line("other", rounds=1, cohort=1, **{**CLEAR, "metrics": ["accuracy"]}))
            take_part(running, "other")
            self.assertEqual(running.operator.plot("other", ax=plt.figure().add_subplot()).get_ylabel(), "accuracy")
        plt.close("all")

    def test_rounds_are_told_as_they_end(self):
        with federation() as running:
            running.operator.create(line("watched", rounds=2, cohort=1, **CLEAR))
            watch = running.operator.watch("watched")
            take_part(running, "watched")
            self.assertEqual([(round["number"], round["state"], round["reported"]) for round in watch], [(1, "COMPLETED", 1), (2, "COMPLETED", 1)])
            self.assertEqual(list(running.operator.watch("watched")), [], "they ended before")
            self.assertEqual(running.operator.wait("watched")["model_version"], 2)


if __name__ == "__main__":
    unittest.main()
