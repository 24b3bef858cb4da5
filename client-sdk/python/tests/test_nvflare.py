"""Scripts of NVFlare's Client API: unchanged where NVFlare is installed, and with this package in its place."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap
import unittest

import numpy as np
import tributary as tb
from federation import each, federation, installed, line

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples" / "nvflare"
SITES = 3


def take_part(running, task, script, arguments, *options):
    """What each site printed that ran a script, with the arguments for its number."""
    said = [""] * SITES

    def site(index):
        known = {
            "TRIBUTARY_SERVER": running.url,
            "TRIBUTARY_CA": running.ca,
            "TRIBUTARY_ENROLLMENT_TOKEN": running.operator.enroll(f"{task}-{index}"),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "tributary.nvflare", "--task", task, "--journal", running.folder / f"{task}-{index}"]
        command += ["--name", f"{task}-{index}", "--min-cohort", "3", "--min-tolerated-colluders", "0", *options, EXAMPLES / script]
        command += map(str, arguments(index))
        done = subprocess.run(command, cwd=running.folder, env={**os.environ, **known}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        said[index] = done.stdout + done.stderr

    each(site, range(SITES))
    assert running.operator.wait(task)["status"] == "COMPLETED"
    return said


class Nvflare(unittest.TestCase):
    @installed("nvflare")
    def test_hello_numpy_is_summed(self):
        with federation() as running:
            running.operator.create(line("hello", metrics=["weight_mean"]))
            said = take_part(running, "hello", "hello_numpy.py", lambda index: ["--step", index + 1])
            np.testing.assert_allclose(running.operator.model("hello")["w"], 4.0, atol=1e-4)
            measured = [round["metrics"]["weight_mean"]["value"] for round in running.operator.rounds("hello")]
        np.testing.assert_allclose(measured, [0, 2], atol=1e-3)
        self.assertIn("site hello-0 of job hello", said[0])

    @installed("nvflare")
    def test_evaluation_precedes_training_if_wanted(self):
        with federation() as running:
            running.operator.create(line("both", rounds=1, metrics=["weight_mean"]))
            said = take_part(running, "both", "hello_numpy.py", lambda index: [], "--evaluates")
            np.testing.assert_allclose(running.operator.model("both")["w"], 1.0, atol=1e-4)
        self.assertIn("evaluates the model of round 0", said[0])

    @installed("nvflare", "torch", "sklearn")
    def test_hello_pt_learns(self):
        """Its batch normalization has a counter, which the task does not have."""
        import torch

        with federation() as running:
            torch.manual_seed(1)
            net = torch.nn.ModuleDict({"hidden": torch.nn.Linear(64, 32), "norm": torch.nn.BatchNorm1d(32), "out": torch.nn.Linear(32, 10)})
            spec = {"training": {"epochs": 5}, "rounds": {"count": 4, "select_max": SITES}, "selection": {"cohort": {"count": SITES}}}
            running.operator.create({"name": "digits", **spec, "aggregation": {"clip_range": 16.0}, "metrics": ["accuracy"]}, model=net)
            said = take_part(running, "digits", "hello_pt.py", lambda index: ["--site", index, "--sites", SITES])
            accuracy = [round["metrics"]["accuracy"]["value"] for round in running.operator.rounds("digits")]
        print(f"hello-pt, {SITES} sites: accuracy by round {accuracy}")
        self.assertEqual(re.findall(r"round (\d)", said[0]), ["0", "1", "2", "3"])
        self.assertGreater(accuracy[-1], accuracy[0] + 0.5)

    @installed("nvflare", "torch", "sklearn", "pytorch_lightning")
    def test_lightnings_trainer_learns(self):
        self.learns("hello_lightning.py", "val_acc")

    @installed("nvflare", "torch", "sklearn", "transformers")
    def test_trainer_of_transformers_learns(self):
        self.learns("hello_hf.py", "eval_accuracy")

    def learns(self, script, metric):
        """Runs a script whose model has two layers by the name `layers`."""
        import torch

        with federation() as running:
            torch.manual_seed(1)
            net = torch.nn.ModuleDict({"layers": torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))})
            spec = {"rounds": {"count": 3, "select_max": SITES}, "selection": {"cohort": {"count": SITES}}}
            running.operator.create({"name": "digits", **spec, "aggregation": {"clip_range": 16.0}, "metrics": [metric]}, model=net)
            take_part(running, "digits", script, lambda index: ["--site", index, "--sites", SITES])
            accuracy = [round["metrics"][metric]["value"] for round in running.operator.rounds("digits")]
        print(f"{script}, {SITES} sites: accuracy by round {accuracy}")
        self.assertGreater(accuracy[-1], accuracy[0] + 0.3)

    def test_script_without_nvflare_sends_differences(self):
        script = textwrap.dedent(
            """
            import json, sys
            import tributary.nvflare as flare

            flare.init(**json.loads(sys.argv[1]), tensors="numpy")
            assert flare.receive(timeout=0.0) is None and flare.is_train() and not flare.is_submit_model()
            while flare.is_running():
                received = flare.receive()
                assert received is flare.receive()
                assert flare.get_config()["plan"]["learning_rate"] == 0.05, flare.get_config()
                rounds = received.current_round
                change = {name: 0 * value + 1 for name, value in received.params.items()}
                flare.send(flare.FLModel(params=change, params_type="DIFF", metrics={"accuracy": 0.5}))
            print(flare.get_site_name(), rounds)
            flare.shutdown()
            """
        )
        with federation() as running:
            running.operator.create(line("differ"))

            def site(index):
                import json

                options = {name: str(value) if name == "journal" else value for name, value in running.options(f"p{index}", task="differ").items()}
                done = subprocess.run([sys.executable, "-c", script, json.dumps(options)], capture_output=True, text=True, timeout=300)
                self.assertEqual((done.returncode, done.stdout), (0, f"p{index} 1\n"), done.stderr)

            each(site, range(SITES))
            np.testing.assert_allclose(running.operator.model("differ")["w"], 2.0, atol=1e-4)

    def test_misuse_is_named(self):
        import tributary.nvflare as flare

        with self.assertRaisesRegex(tb.ConfigurationError, "needs task=… and journal=…"):
            flare.init()
        with self.assertRaisesRegex(tb.ConfigurationError, "one process"):
            flare.init(rank=1)
        with self.assertRaisesRegex(RuntimeError, "call `init` first"):
            flare.receive()


if __name__ == "__main__":
    unittest.main()
