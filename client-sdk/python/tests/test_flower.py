"""Flower apps, unchanged: beside Flower's own run, from the same first model, under secure aggregation."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import tributary as tb
from federation import each, federation, installed, line

SITES = 3
ROUNDS = 3


def take_part(running, client, config, task, rounds=ROUNDS, **spec):
    """The last version, and the rounds, of a task in which each site runs a client."""
    import tributary.flower

    given = {"rounds": {"count": rounds, "select_max": SITES}, "selection": {"cohort": {"count": SITES}}, "aggregation": {"clip_range": 16.0}}
    running.operator.create({"name": task, **given, **spec})

    def site(index):
        options = running.options(f"{task}-{index}", task=task, quiet=True)
        tributary.flower.run(client, node_config={"partition-id": index, "num-partitions": SITES}, run_config=config, **options)

    each(site, range(SITES))
    assert running.operator.wait(task)["status"] == "COMPLETED"
    return running.operator.model(task), running.operator.rounds(task)


@installed("flwr", "sklearn")
class Flower(unittest.TestCase):
    @installed("torch")
    def test_pytorch_app_equals_flowers_run(self):
        """By the command line at one site. Its batch normalization has a counter, which the task does not have."""
        import flower_run
        import torch

        torch.set_num_threads(1)
        with flower_run.app("torch") as (client, server, config), federation() as running, tempfile.TemporaryDirectory() as folder:
            flower_run.run_flower(client, server, SITES, config, **{"save-to": f"{folder}/flower.pt"})
            theirs = torch.load(f"{folder}/flower.pt")
            running.operator.create(
                {
                    "name": "digits",
                    "rounds": {"count": ROUNDS, "select_max": SITES},
                    "selection": {"cohort": {"count": SITES}},
                    "training": {"epochs": config["local-epochs"], "batch_size": config["batch-size"], "learning_rate": config["lr"]},
                    "aggregation": {"clip_range": 16.0},
                    "metrics": ["train_loss", "eval_loss", "eval_acc"],
                },
                model=server.first_model(),
            )

            def site(index):
                import tributary.flower

                node = {"partition-id": index, "num-partitions": SITES}
                if index:
                    options = running.options(f"site-{index}", task="digits", quiet=True)
                    tributary.flower.run(client, node_config=node, **options)
                    return
                known = {"TRIBUTARY_SERVER": running.url, "TRIBUTARY_CA": running.ca, "TRIBUTARY_ENROLLMENT_TOKEN": running.operator.enroll("site-0")}
                command = [sys.executable, "-m", "tributary.flower", "--task", "digits", "--journal", str(running.folder / "site-0")]
                command += ["--min-cohort", "3", "--min-tolerated-colluders", "0"]
                command += ["--node-config", f"partition-id=0 num-partitions={SITES}", str(flower_run.EXAMPLES / "torch")]
                subprocess.run(command, check=True, env={**os.environ, **known, "OMP_NUM_THREADS": "1"}, timeout=300)

            each(site, range(SITES))
            ours = running.operator.model("digits")
            rounds = running.operator.rounds("digits")
            away = max(float(np.abs(ours[name] - theirs[name].numpy()).max()) for name in ours)
            task = sys.modules["quickstart_torch.task"]
            accuracy = {}
            for whose, arrays in (("Tributary", ours), ("Flower", {name: value.numpy() for name, value in theirs.items()})):
                net = task.Net()
                net.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()}, strict=False)
                accuracy[whose] = task.test(net, task.load_data(None, None, 100))[1]
        print(f"PyTorch, {SITES} sites, {ROUNDS} rounds: {accuracy}, parameters differ by at most {away:.1e}")
        self.assertLess(away, 1e-4)
        self.assertLess(abs(accuracy["Tributary"] - accuracy["Flower"]), 0.01)
        self.assertGreater(accuracy["Tributary"], 0.8)
        self.assertEqual([round["reported"] for round in rounds], [SITES] * ROUNDS)
        self.assertLess(rounds[0]["metrics"]["eval_acc"]["value"], 0.3, "the first round evaluates the first model")
        self.assertGreater(rounds[-1]["metrics"]["eval_acc"]["value"], 0.7)
        self.assertLess(rounds[-1]["metrics"]["train_loss"]["value"], rounds[0]["metrics"]["train_loss"]["value"])

    def test_sklearn_app_equals_flowers_run(self):
        import flower_run

        with flower_run.app("sklearn") as (client, server, config), federation() as running, tempfile.TemporaryDirectory() as folder:
            flower_run.run_flower(client, server, SITES, config, **{"save-to": f"{folder}/flower.npz"})
            theirs = np.load(f"{folder}/flower.npz")
            ours, rounds = take_part(
                running,
                client,
                config,
                "digits",
                model={"tensors": [{"name": "coef", "shape": [10, 64]}, {"name": "intercept", "shape": [10]}]},
                training={"epochs": config["local-epochs"], "learning_rate": 0.1},
                metrics=["train_logloss", "test_logloss", "accuracy"],
            )
            x, y = sys.modules["quickstart_sklearn.task"].load_data(None, None)
        accuracy = {
            whose: float(((x @ weights.T + bias).argmax(axis=1) == y).mean())
            for whose, weights, bias in (("Tributary", ours["coef"], ours["intercept"]), ("Flower", theirs["arr_0"], theirs["arr_1"]))
        }
        print(f"scikit-learn, {SITES} sites, {ROUNDS} rounds: {accuracy}")
        self.assertLess(abs(accuracy["Tributary"] - accuracy["Flower"]), 0.01)
        self.assertGreater(accuracy["Tributary"], 0.85)
        np.testing.assert_allclose(ours["coef"], theirs["arr_0"], atol=1e-4)
        self.assertGreater(rounds[-1]["metrics"]["accuracy"]["value"], rounds[0]["metrics"]["accuracy"]["value"])

    def test_numpy_client_keeps_state_and_equals_flowers_run(self):
        import flower_run
        from flwr.app import Context, RecordDict
        from flwr.server.compat.app import start_grid

        with flower_run.app("advanced") as (client, server, config), federation() as running:
            parts = server.server_fn(Context(1, 1, {}, RecordDict(), config))
            flower_run.identify()
            history = start_grid(grid=flower_run.InProcess(client, SITES, config), config=parts.config, strategy=parts.strategy)
            ours, rounds = take_part(
                running,
                client,
                config,
                "digits",
                # Flower evaluates after each round, Tributary before the next.
                rounds=ROUNDS + 1,
                model={"tensors": [{"name": "weights", "shape": [10, 64]}, {"name": "bias", "shape": [10]}]},
                training={"epochs": 1, "learning_rate": 0.5},
                metrics=["train_rounds_seen", "loss", "accuracy"],
            )
        theirs = [value for _, value in history.metrics_distributed["accuracy"]]
        found = [round["metrics"]["accuracy"]["value"] for round in rounds[1:]]
        print(f"NumPyClient, {SITES} sites: accuracy by round {found}, Flower {theirs}")
        # A participant rounds its metrics to two digits.
        np.testing.assert_allclose(found, theirs, atol=0.01)
        np.testing.assert_allclose([round["metrics"]["loss"]["value"] for round in rounds[1:]], [loss for _, loss in history.losses_distributed], rtol=0.05)
        self.assertEqual([round["metrics"]["train_rounds_seen"]["value"] for round in rounds], [1, 2, 3, 4])
        np.testing.assert_array_equal(ours["bias"], 0)

    def test_failing_client_is_reported_and_gets_the_plan_again(self):
        """First a client that raises, then one whose reply lacks its examples, then one that trains."""
        import tributary.flower
        from flwr.app import Message, RecordDict
        from flwr.client import NumPyClient
        from flwr.clientapp import ClientApp

        app, seen, errors = ClientApp(), [], io.StringIO()

        @app.train()
        def train(message, context):
            return Message(content=RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

        class Client(NumPyClient):
            def fit(self, parameters, config):
                seen.append(config)
                if len(seen) == 1:
                    raise ValueError("the disk is full")
                return [array + 1 for array in parameters], 4, {"note": "text", "loss": 0.25}

        with federation(TRIBUTARY_HTTP_POLL_MAX_MS="500") as running:
            spec = line("asks", rounds=1, cohort=1, secure_aggregation={"enabled": False}, metrics=["train_loss"])
            spec["training"] = {"steps": 7, "epochs": 2, "learning_rate": 0.5, "proximal_mu": 0.1, "optimizer": {"name": "adamw"}}
            running.operator.create(spec)
            options = {**running.options("asks", task="asks", quiet=True), "secure_aggregation": {"required": False}}
            with contextlib.redirect_stderr(errors), tb.participant(**options) as me:
                clients = (Client(), app, Client())
                nodes = iter([tributary.flower.Node(client, name="asks") for client in clients])
                answered = [next(nodes).answer(task) for task in me.tasks()]
            self.assertEqual(answered, [False, False, True])
            self.assertIn("the disk is full", errors.getvalue())
            self.assertIn("has no metric 'num-examples'", errors.getvalue())
            expected = {"learning-rate": 0.5, "lr": 0.5, "steps": 7, "proximal-mu": 0.1, "optimizer": "adamw", "server-round": 1, "batch-size": 32}
            self.assertEqual({name: seen[-1][name] for name in expected}, expected)
            (only,) = running.operator.rounds("asks")
            self.assertAlmostEqual(only["metrics"]["train_loss"]["value"], 0.25, places=3)
            np.testing.assert_allclose(running.operator.model("asks")["b"], 1.0, atol=1e-4)

    def test_personalized_model_is_measured_after_training(self):
        from flwr.client import NumPyClient

        class Client(NumPyClient):
            def fit(self, parameters, config):
                return [array + 1 for array in parameters], 4, {}

            def evaluate(self, parameters, config):
                return 0.5, 2, {"accuracy": float(parameters[1][0]) / 4}

        with federation() as running:
            _, rounds = take_part(
                running,
                Client(),
                {},
                "own",
                rounds=2,
                model=line("own")["model"],
                training={"epochs": 1, "learning_rate": 0.1},
                personalization={"method": "fine_tune", "epochs": 2},
                metrics=["accuracy", "personal_accuracy"],
            )
        found = [[round["metrics"][name]["value"] for name in ("accuracy", "personal_accuracy")] for round in rounds]
        np.testing.assert_allclose(found, [[0, 0.25], [0.25, 0.5]], atol=0.03)

    def test_object_that_is_no_client_is_rejected(self):
        import tributary.flower

        with self.assertRaisesRegex(tb.ConfigurationError, "no Flower client; it must be a ClientApp"):
            tributary.flower.run(object(), task="none", journal="none")


if __name__ == "__main__":
    unittest.main()
