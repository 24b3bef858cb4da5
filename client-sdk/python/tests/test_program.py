"""`tributary.job()`, against a folder as a participant makes it. Needs neither the native module nor a coordinator; what needs PyTorch
says so and is skipped without it. Alone: python3 test_program.py
"""

import array
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

FILE = pathlib.Path(__file__).parents[1] / "tributary" / "program.py"
TENSORS = {"w": (2, 3), "b": (2,)}
WITH_TORCH = subprocess.run([sys.executable, "-c", "import torch, numpy"], capture_output=True).returncode == 0
#: Two layers, whose tensors a job names; each part below trains them in its way.
NET = """
import os, torch, tributary
import torch.distributed as dist
from torch import nn
torch.set_num_threads(1)
def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
"""


class Folder:
    """The folder of a job, and the file that a site copies beside its script."""

    def __init__(self, tensors=TENSORS, kind="train", **more):
        self.temporary = tempfile.TemporaryDirectory(prefix="tributary-job-")
        self.site = pathlib.Path(self.temporary.name)
        self.path = self.site / "train-3-1"
        (self.path / "checkpoint").mkdir(parents=True)
        (self.site / "tributary.py").write_bytes(FILE.read_bytes())
        about = {
            "schema": 1,
            "kind": kind,
            "task": "line",
            "round": 3,
            "seed": 2**63 + 1,
            "deadline": 1_700_000_000_500,
            "budget": {"steps": 9, "time_ms": 1500},
            "plan": {"epochs": 1, "steps": None, "batch_size": 32, "learning_rate": 0.1},
            "architecture": None,
            "table": None,
            "metrics": ["loss"],
            "tensors": [{"name": name, "shape": list(shape)} for name, shape in tensors.items()],
            **more,
        }
        (self.path / "job.json").write_text(json.dumps(about))
        header, at, numbers = {}, 0, array.array("f")
        for name, shape in tensors.items():
            count = 1
            for side in shape:
                count *= side
            numbers.extend(range(len(numbers), len(numbers) + count))
            header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * count]}
            at += 4 * count
        text = json.dumps(header).encode()
        (self.path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + numbers.tobytes())
        (self.path / "model.safetensors").chmod(0o400)

    def run(self, script, processes=None, isolated=False, **environment):
        """Runs a script beside the copied file; under torchrun if it has processes."""
        (self.site / "train.py").write_text(script)
        command = [sys.executable, *(["-S"] if isolated else [])]
        if processes:
            command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        variables = {**os.environ, "TRIBUTARY_JOB": str(self.path), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(self.site), **environment}
        return subprocess.run([*command, "train.py"], cwd=self.site, env=variables, capture_output=True, text=True, timeout=300)

    def trained(self):
        raw = (self.path / "trained.safetensors").read_bytes()
        (length,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8 : 8 + length])
        at = 8 + length
        return {name: array.array("f", raw[at + place["data_offsets"][0] : at + place["data_offsets"][1]]) for name, place in header.items()}

    def result(self):
        return json.loads((self.path / "result.json").read_bytes())


class Alone(unittest.TestCase):
    """With Python's standard library."""

    def folder(self, **more):
        folder = Folder(**more)
        self.addCleanup(folder.temporary.cleanup)
        return folder

    def runs(self, folder, script, **how):
        ran = folder.run(script, **how)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def test_a_job_is_read_and_its_result_is_left(self):
        folder = self.folder()
        said = self.runs(
            folder,
            "import sys, tributary\n"
            "job = tributary.job()\n"
            "print(job.kind, job.task, job.round, job.seed, job.plan.learning_rate, job.plan.accumulate, job.deadline)\n"
            "print(job.budget.steps, job.budget.seconds, job.shapes, job.rank, job.processes)\n"
            "model = job.model()\n"
            "model['w'] = [[x + 1 for x in model['w'][:3]], list(model['w'][3:])]\n"
            "job.progress(1, of=2, loss=float('nan'), samples_per_s=10.5)\n"
            "job.progress(2, of=2, loss=0.5, communication_s=0.25)\n"
            "job.done(model, examples=7, metrics={'loss': 0.5, 'accuracy': (0.25, 4)}, reach=0.5, steps=5)\n"
            "assert not {'numpy', 'torch'} & set(sys.modules)\n",
            isolated=True,
        )
        self.assertEqual(
            said,
            "train line 3 9223372036854775809 0.1 1 1700000000.5\n9 1.5 {'w': (2, 3), 'b': (2,)} 0 1\n",
        )
        trained = folder.trained()
        self.assertEqual((list(trained["w"]), list(trained["b"])), ([1, 2, 3, 3, 4, 5], [6, 7]))
        metrics = {"loss": 0.5, "accuracy": {"value": 0.25, "count": 4}}
        self.assertEqual(folder.result(), {"examples": 7, "metrics": metrics, "reach": 0.5, "steps": 5})
        lines = (folder.path / "progress.jsonl").read_text().splitlines()
        self.assertEqual(json.loads(lines[0]), {"step": 1, "of": 2, "samples_per_s": 10.5, "processes": 1})
        self.assertEqual(json.loads(lines[1]), {"step": 2, "of": 2, "loss": 0.5, "communication_s": 0.25, "processes": 1})
        self.assertEqual({entry.name for entry in folder.path.iterdir()}, {"checkpoint", "job.json", "model.safetensors", "progress.jsonl", "result.json", "trained.safetensors"})

    def test_what_is_wrong_is_told_and_leaves_nothing(self):
        begin = "import tributary; job = tributary.job(); "
        for script, words in [
            ("job.done({'w': [0.0] * 6}, examples=1)", "it lacks ['b'], and the job does not have its []"),
            ("job.done({'w': [0.0] * 6, 'b': [0, 0], 'c': [1]}, examples=1)", "it lacks [], and the job does not have its ['c']"),
            ("job.done({'w': [0.0] * 5, 'b': [0, 0]}, examples=1)", "w has 5 numbers; shape [2, 3] has 6"),
            ("job.done(3, examples=1)", "a model is a module, or its tensors by name, and no int"),
            ("job.done(examples=1)", "a training leaves a model"),
            ("job.done({'w': ['one'] * 6, 'b': [0, 0]}, examples=1)", "JobError: w has what is no number"),
            ("job.done(job.model(), examples=1, metrics={'loss': float('nan')})", "the metric loss is nan"),
            ("job.done(job.model(), examples=1, metrics={'loss': 'low'})", "JobError: the metric loss is 'low'"),
            ("job.done(job.model(), examples=1, metrics={'loss': (0.5, None, 1)})", "JobError: the metric loss is (0.5, None, 1)"),
            ("job.done(job.model(), examples='many')", "JobError: examples is 'many'"),
        ]:
            folder = self.folder()
            ran = folder.run(begin + script)
            self.assertNotEqual(ran.returncode, 0, script)
            self.assertIn(words, ran.stderr)
            self.assertFalse((folder.path / "result.json").exists(), script)
        folder = self.folder()
        (folder.path / "model.safetensors").unlink()
        self.assertIn("JobError: ", folder.run(begin + "job.model()").stderr)
        (folder.path / "job.json").write_text("{")
        self.assertIn("holds no job", folder.run(begin).stderr)
        folder = self.folder(schema=2)
        self.assertIn("has schema 2; this file knows 1", folder.run(begin).stderr)
        self.assertIn("is started by `tributary participant run --trainer", folder.run("import os; del os.environ['TRIBUTARY_JOB']; " + begin).stderr)

    def test_names_that_look_like_those_of_wrappers_are_the_jobs_own_where_it_has_them(self):
        weights, biases = [0, 1, 2, 3, 4, 5], [6, 7]
        for given in ("", "module.", "_orig_mod.module."):
            folder = self.folder(tensors={"module.w": (2, 3), "head.module.b": (2,)})
            model = {f"{given}module.w": weights, f"{given}head.module.b": biases, f"{given}head._extra_state": b"of a layer"}
            ran = folder.run(f"import tributary; tributary.job().done({model!r}, examples=1)", isolated=True)
            self.assertEqual(ran.returncode, 0, (given, ran.stderr))
            self.assertEqual({name: list(values) for name, values in folder.trained().items()}, {"module.w": weights, "head.module.b": biases})

    def test_no_tensor_takes_the_place_of_another(self):
        folder = self.folder()
        model = {"w": [0] * 6, "module.w": [1] * 6, "b": [2] * 2}
        ran = folder.run(f"import tributary; tributary.job().done({model!r}, examples=1)", isolated=True)
        self.assertIn("the model has w twice, once as module.w", ran.stderr)
        self.assertFalse((folder.path / "trained.safetensors").exists())

    def test_an_evaluation_leaves_no_model(self):
        folder = self.folder(kind="evaluate")
        self.runs(folder, "import tributary; job = tributary.job(); assert job.kind == 'evaluate'; job.done(examples=3, metrics={'loss': 1})")
        self.assertEqual(folder.result(), {"examples": 3, "metrics": {"loss": 1}})
        self.assertFalse((folder.path / "trained.safetensors").exists())

    def test_a_refusal_is_a_status_and_a_file(self):
        folder = self.folder()
        ran = folder.run("import tributary; tributary.job().refuse('no rows of this year')")
        self.assertEqual((ran.returncode, ran.stderr.strip()), (75, "no rows of this year"))
        self.assertEqual((folder.path / "refused").read_text(), "no rows of this year")

    def test_jobs_come_one_after_the_other(self):
        folder = self.folder()
        second = folder.site / "evaluate-4-1"
        shutil.copytree(folder.path, second)
        (folder.site / "current").write_text(folder.path.name)
        script = (
            "import os, pathlib, tributary\n"
            "current = pathlib.Path(os.environ['TRIBUTARY_JOBS']) / 'current'\n"
            "for job in tributary.jobs(idle=0.3):\n"
            "    assert job.is_wanted()\n"
            "    if current.read_text() == 'train-3-1':\n"
            "        job.done(job.model(), examples=7)\n"
            "        assert not job.is_wanted()\n"
            "        current.with_name('draft').write_text('evaluate-4-1')\n"
            "        current.with_name('draft').rename(current)\n"
            "    else:\n"
            "        job.refuse('not this one')\n"
            "    print(job.round)\n"
        )
        self.assertEqual(self.runs(folder, script, TRIBUTARY_JOBS=str(folder.site)), "3\n3\n")
        self.assertEqual(folder.result()["examples"], 7)
        self.assertEqual((second / "refused").read_text(), "not this one")

    def test_jobs_that_are_left_or_no_longer_wanted(self):
        folder = self.folder()
        begin = "import tributary, pathlib\nfor job in tributary.jobs(idle=0.1): "
        self.assertIn("TRIBUTARY_JOBS is not set", folder.run(begin + "pass").stderr)
        self.assertEqual(self.runs(folder, begin + "print(1)", TRIBUTARY_JOBS=str(folder.site)), "", "no job waits")
        (folder.site / "current").write_text(folder.path.name)
        ran = folder.run(begin + "pass", TRIBUTARY_JOBS=str(folder.site))
        self.assertIn("train-3-1 was given neither a result nor a refusal", ran.stderr)
        withdrawn = f"pathlib.Path({str(folder.site)!r}, 'current').unlink(); assert not job.is_wanted(); print('next')"
        self.assertEqual(self.runs(folder, begin + withdrawn, TRIBUTARY_JOBS=str(folder.site)), "next\n")

    def test_a_job_that_is_withdrawn_stops_nobody(self):
        folder = self.folder()
        (folder.site / "current").write_text(folder.path.name)
        script = (
            "import os, pathlib, shutil, tributary\n"
            "within = pathlib.Path(os.environ['TRIBUTARY_JOBS'])\n"
            "for job in tributary.jobs(idle=0.2):\n"
            "    shutil.rmtree(within / 'train-3-1')\n"
            "    job.progress(1); job.checkpoint.save({}); job.done(tensors, examples=1)\n"
            "    assert not job.is_wanted()\n"
            "    print('goes on')\n"
        ).replace("tensors", repr({name: [0.0] * (6 if name == "w" else 2) for name in TENSORS}))
        self.assertEqual(self.runs(folder, script, TRIBUTARY_JOBS=str(folder.site)), "goes on\n", "and current names what is gone")

    def test_the_drivers_word_is_told_unless_the_script_knows_better(self):
        script = (
            "import sys, types\n"
            "torch = sys.modules['torch'] = types.ModuleType('torch')\n"
            "def utilization(): {body}\n"
            "torch.cuda = types.SimpleNamespace(is_available=lambda: True, utilization=utilization)\n"
            "import tributary\n"
            "tributary.job().progress(1{more})\n"
        )
        for body, more, told in (("return 75", "", 0.75), ("return 75", ", utilisation=0.5", 0.5), ("raise RuntimeError", "", None)):
            folder = self.folder()
            self.runs(folder, script.format(body=body, more=more))
            line = json.loads((folder.path / "progress.jsonl").read_text())
            self.assertEqual(line.get("utilisation"), told)

    def test_a_checkpoint_is_whole_or_the_last_one(self):
        folder = self.folder()
        first = (
            "import os, tributary\n"
            "job = tributary.job()\n"
            "assert job.checkpoint.load() is None\n"
            "job.checkpoint.save({'step': 1})\n"
            "open(os.path.join(job.checkpoint, 'state.new'), 'w').write('half of the next')\n"
        )
        self.runs(folder, first)
        self.assertEqual(self.runs(folder, "import tributary; print(tributary.job().checkpoint.load())"), "{'step': 1}\n")

    def test_a_setting_that_the_program_does_not_follow_is_refused_by_its_name(self):
        usual = {"epochs": 1, "steps": None, "batch_size": 32, "learning_rate": 0.1, "momentum": 0.0, "weight_decay": 0.0, "proximal_mu": 0.0}
        follow = "import tributary\njob = tributary.job()\njob.follow('epochs', 'learning_rate', batch_size=32)\nprint('follows')\n"
        for more in ({}, {"budget": {"steps": 9}}, {"fairness": {"q": 1.0}}):
            done = Folder(plan={**usual, **more}).run(follow)
            self.assertEqual((done.returncode, done.stdout), (0, "follows\n"), done.stderr)
        asked = {"gradient_clip": 1.0, "proximal_mu": 0.01, "accumulate": 4, "schedule": {"kind": "cosine"}, "precision": "bf16", "steps": 5}
        asked |= {"optimizer": {"name": "adam_w"}, "warmup": {"steps": 5}, "solver": "fed_nova", "adaptive_mu": {}, "momentum": 0.9, "batch_size": 16}
        for key, value in asked.items():
            with self.subTest(key=key):
                folder = Folder(plan={**usual, key: value})
                done = folder.run(follow)
                why = (folder.path / "refused").read_text()
                self.assertEqual((done.returncode, done.stdout), (75, ""), done.stderr)
                self.assertTrue(why.startswith(f"this program does not follow training.{key} = {json.dumps(value)}"), why)
        self.assertTrue(why.endswith("; it follows 32 alone"), why)

    def test_other_ranks_have_the_plan_and_write_nothing(self):
        folder = self.folder()
        script = "import tributary; job = tributary.job(); print(job.rank, job.processes); job.progress(1); job.done({}, examples=1)"
        self.assertEqual(self.runs(folder, script, RANK="1", WORLD_SIZE="2"), "1 2\n")
        self.assertEqual({entry.name for entry in folder.path.iterdir()}, {"checkpoint", "job.json", "model.safetensors"})

    def test_the_package_has_the_same(self):
        try:
            import tributary
        except ImportError:
            self.skipTest("the package is not installed")
        self.assertEqual(tributary.job.__module__, "tributary.program")
        self.assertTrue(issubclass(tributary.JobError, tributary.Error))


@unittest.skipUnless(WITH_TORCH, "SKIPPED: no PyTorch and NumPy, so no group of processes left a result")
class Groups(unittest.TestCase):
    """Two processes of PyTorch's, over gloo."""

    TENSORS = {"0.weight": (8, 4), "0.bias": (8,), "2.weight": (2, 8), "2.bias": (2,)}

    def run_in(self, processes, script):
        folder = Folder(tensors=self.TENSORS)
        self.addCleanup(folder.temporary.cleanup)
        ran = folder.run(NET + script, processes=processes)
        self.assertEqual(ran.returncode, 0, ran.stderr[-3000:])
        return folder

    def check(self, script):
        """The trained model is the received one, with 1 added to each number."""
        trained = self.run_in(2, script).trained()
        at = 0
        for name, shape in self.TENSORS.items():
            count = len(trained[name])
            self.assertEqual(list(trained[name]), [at + index + 1.0 for index in range(count)], name)
            at += count

    def test_wrapped_by_ddp(self):
        self.check(
            "dist.init_process_group('gloo')\n"
            "os.environ.pop('TRIBUTARY_JOB') if dist.get_rank() else None\n"
            "job = tributary.job()\n"
            "model = net(); model.load_state_dict(job.model())\n"
            "model = torch.compile(nn.parallel.DistributedDataParallel(model), backend='eager')\n"
            "with torch.no_grad(): [p.add_(1) for p in model.parameters()]\n"
            "job.checkpoint.save({'step': 1, 'w': torch.ones(2)})\n"
            "dist.barrier()\n"
            "assert job.checkpoint.load()['w'].tolist() == [1, 1]\n"
            "job.done(model, examples=1)\n"
        )

    def test_sharded(self):
        self.check(
            "from torch.distributed.fsdp import fully_shard\n"
            "dist.init_process_group('gloo')\n"
            "job = tributary.job()\n"
            "model = net()\n"
            "fully_shard(model[0]); fully_shard(model)\n"
            "job.load(model)\n"
            "with torch.no_grad(): [p.add_(1) for p in model.parameters()]\n"
            "assert model[0].weight.to_local().shape[0] == 4\n"
            "job.done(model, examples=1)\n"
        )

    def test_in_parts(self):
        self.check(
            "dist.init_process_group('gloo')\n"
            "job = tributary.job()\n"
            "mine = ('0.', '2.')[job.rank]\n"
            "part = {name: value.double() + 1 for name, value in job.model().items() if name.startswith(mine)}\n"
            "job.done(part, examples=1)\n"
        )

    def test_the_group_ends_before_the_program(self):
        folder = self.run_in(
            2,
            "import atexit\n"
            "atexit.register(lambda: open(os.environ['RANK'], 'w').write(str(dist.is_initialized())))\n"
            "dist.init_process_group('gloo')\n"
            "tributary.job().done(net(), examples=1)\n",
        )
        self.assertEqual([(folder.site / rank).read_text() for rank in "01"], ["False", "False"])

    def test_half_precision_and_counters(self):
        folder = self.run_in(1, "job = tributary.job(); model = job.model(); model['0.bias'] = torch.ones(8, dtype=torch.bfloat16)\nmodel['n'] = torch.tensor(3)\njob.done(model, examples=1)\n")
        self.assertEqual(list(folder.trained()["0.bias"]), [1.0] * 8)

    def test_a_refusal_under_a_launcher(self):
        folder = Folder(tensors=self.TENSORS)
        self.addCleanup(folder.temporary.cleanup)
        ran = folder.run(NET + "dist.init_process_group('gloo'); tributary.job().refuse('not today')", processes=2)
        self.assertNotIn(ran.returncode, (0, 75))
        self.assertEqual((folder.path / "refused").read_text(), "not today")


if __name__ == "__main__":
    unittest.main()
