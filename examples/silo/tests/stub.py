"""A training of two processes with Python's standard library: one waits for the other, which takes the steps. Its result depends on
nothing but the job. stub.py [COUNT OF STEPS, 25] [SECONDS OF EACH, 0.02]
"""
import os
import pathlib
import random
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tributary  # noqa: E402

STEPS, SECONDS = int(sys.argv[1]), float(sys.argv[2])


def note(job, name):
    """This process's number, for whoever wants to kill it."""
    path = pathlib.Path(job.checkpoint) / name
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").replace(path)


def steps(job):
    note(job, "rank")
    state = job.checkpoint.load() or {"step": 0, "w": list(job.model()["w"])}
    while state["step"] < STEPS:
        draw = random.Random(job.seed + state["step"])
        state = {"step": state["step"] + 1, "w": [0.9 * w + draw.uniform(-0.1, 0.1) for w in state["w"]]}
        time.sleep(SECONDS)
        job.checkpoint.save(state)
        job.progress(state["step"], of=STEPS, samples_per_s=64 / SECONDS)
    job.done({"w": state["w"]}, examples=64, metrics={"train_loss": sum(w * w for w in state["w"])})


found = tributary.job()
if found.kind == "evaluate":
    found.refuse("a stub does not evaluate")
if len(sys.argv) > 3:
    steps(found)
else:
    note(found, "program")
    sys.exit(1 if subprocess.run([sys.executable, *sys.argv, "rank"]).returncode else 0)
