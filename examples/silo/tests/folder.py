"""The folder of a job, as a participant makes it, and a program that runs in it. Needs PyTorch."""
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
from unittest import mock

import torch
from safetensors.torch import load_file, save_file

SILO = pathlib.Path(__file__).resolve().parents[1]
PLAN = {"epochs": 1, "steps": 20, "batch_size": 64, "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.001, "accumulate": 1}


class Folder:
    """Of one training, from a model given by its tensors."""

    def __init__(self, model, plan=PLAN):
        self.temporary = tempfile.TemporaryDirectory(prefix="tributary-silo-")
        self.path = pathlib.Path(self.temporary.name)
        (self.path / "checkpoint").mkdir()
        save_file({name: value.float().contiguous() for name, value in model.items()}, self.path / "model.safetensors")
        about = {
            "schema": 1,
            "kind": "train",
            "task": "silo",
            "round": 1,
            "seed": 5,
            "deadline": None,
            "budget": {},
            "plan": plan,
            "architecture": None,
            "table": None,
            "metrics": ["train_loss"],
            "tensors": [{"name": name, "shape": list(value.shape)} for name, value in model.items()],
        }
        (self.path / "job.json").write_text(json.dumps(about))

    def start(self, script, processes, site=0, slowly=False, **environment):
        """With the launcher from two processes on."""
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
        program = [str(SILO / "tests" / "slowly.py"), script] if slowly else [str(SILO / script)]
        command = [sys.executable, *launcher, *program, str(site)]
        variables = {**os.environ, "TRIBUTARY_JOB": str(self.path), "OMP_NUM_THREADS": "1", **environment}
        return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, script, processes, **more):
        """The trained model."""
        started = self.start(script, processes, **more)
        said, _ = started.communicate(timeout=300)
        if started.returncode != 0:
            raise RuntimeError(f"{script} with {processes} processes ended with {started.returncode}:\n{said[-4000:]}")
        return load_file(self.path / "trained.safetensors")

    def run_here(self, script, site=0):
        """The trained model of a script that needs no launcher, in this process."""
        with mock.patch.dict(os.environ, TRIBUTARY_JOB=str(self.path)), mock.patch.object(sys, "argv", [script, str(site)]):
            runpy.run_path(str(SILO / script), run_name="__main__")
        return load_file(self.path / "trained.safetensors")

    def kill(self):
        """All processes of this job, as a participant does: `torchrun` gives each a session of its own."""
        wanted = f"TRIBUTARY_JOB={self.path}".encode()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
            except (OSError, ProcessLookupError):
                continue

    def steps(self):
        """Of the last line of progress."""
        try:
            lines = (self.path / "progress.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return 0
        return json.loads(lines[-1])["step"] if lines else 0


def distance(one, other):
    """Relative to the length of the other, over all tensors."""
    apart = sum((one[name].double() - other[name].double()).pow(2).sum() for name in other)
    whole = sum(value.double().pow(2).sum() for value in other.values())
    return float(torch.sqrt(apart / whole))
