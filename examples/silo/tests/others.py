"""The examples that are no PyTorch: plain shell, and scikit-learn where it is. others.py"""
import importlib.util
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

SILO = pathlib.Path(__file__).resolve().parents[1]


def refusal(command, tensors, plan):
    """The reason why the program refuses a training."""
    try:
        run(command, tensors, plan)
    except Refused as refused:
        return str(refused)
    raise AssertionError(f"{command} trained by {plan}")


class Refused(Exception):
    """With the reason that the program left."""


def run(command, tensors, plan, kind="train"):
    """Trains from zeros; the trained numbers by name, and the result."""
    with tempfile.TemporaryDirectory(prefix="tributary-silo-") as folder:
        folder = pathlib.Path(folder)
        (folder / "checkpoint").mkdir()
        header, at = {}, 0
        for name, shape in tensors.items():
            end = at + 4 * (shape[0] * (shape[1] if len(shape) > 1 else 1) if shape else 1)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
            at = end
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
        named = [{"name": name, "shape": shape} for name, shape in tensors.items()]
        about = {"schema": 1, "kind": kind, "task": "t", "round": 1, "seed": 7, "plan": plan, "architecture": None, "table": None, "metrics": []}
        (folder / "job.json").write_text(json.dumps({**about, "tensors": named}, indent=2))
        ran = subprocess.run(command, env={**os.environ, "TRIBUTARY_JOB": str(folder)}, capture_output=True, text=True)
        if ran.returncode == 75:
            raise Refused((folder / "refused").read_text())
        if ran.returncode != 0:
            raise AssertionError(f"{command} ended with {ran.returncode}: {ran.stderr}")
        result = json.loads((folder / "result.json").read_text())
        trained = {}
        if kind == "train":
            raw = (folder / "trained.safetensors").read_bytes()
            (length,) = struct.unpack_from("<Q", raw)
            for name, place in json.loads(raw[8 : 8 + length]).items():
                begin, end = place["data_offsets"]
                trained[name] = struct.unpack_from(f"<{(end - begin) // 4}f", raw, 8 + length + begin)
        return trained, result


def shell(folder):
    for numbers in ([1, 2, 6], [-0.3, -0.1], [1e-3], [1e6, 1e6]):
        (folder / "numbers").write_text("".join(f"{number}\n" for number in numbers))
        trained, result = run(["sh", SILO / "mean.sh", folder / "numbers"], {"mean": []}, {"epochs": 3, "learning_rate": 0.5})
        expected = 0.0
        for _ in range(3):
            expected -= 0.5 * (expected - sum(numbers) / len(numbers))
        assert abs(trained["mean"][0] - expected) <= 1e-6 * abs(expected), (numbers, trained, expected)
        assert result["examples"] == len(numbers), result
    print("mean.sh: the mean of four sites, to 1e-6")


def unfollowed(folder):
    """Programs without PyTorch refuse each key of a plan that they do not follow, and name it."""
    (folder / "rows.csv").write_text("1,3\n2,5\n")
    (folder / "numbers").write_text("1\n2\n")
    usual = {"epochs": 1, "steps": None, "batch_size": 32, "learning_rate": 0.1, "momentum": 0.0, "weight_decay": 0.0, "proximal_mu": 0.0}
    asked = {
        "accumulate": 4,
        "adaptive_mu": {"start": 0.1},
        "gradient_clip": 1.0,
        "momentum": 0.9,
        "optimizer": {"name": "adam_w"},
        "precision": "bf16",
        "proximal_mu": 0.01,
        "schedule": {"kind": "cosine"},
        "solver": "fed_nova",
        "warmup": {"steps": 5},
        "weight_decay": 0.001,
    }
    line, mean = [sys.executable, SILO / "line.py", folder / "rows.csv"], ["sh", SILO / "mean.sh", folder / "numbers"]
    for key, value in asked.items():
        assert refusal(line, {"a": [], "b": []}, {**usual, key: value}).startswith(f"this program does not follow training.{key} = "), key
        assert refusal(mean, {"mean": []}, {**usual, key: value}).strip() == f"this program does not follow training.{key}", key
    assert "training.batch_size = 1" in refusal(line, {"a": [], "b": []}, {**usual, "batch_size": 1})
    assert "training.steps" in refusal(mean, {"mean": []}, {**usual, "steps": 3})
    for command, tensors in ((line, {"a": [], "b": []}), (mean, {"mean": []})):
        run(command, tensors, usual)
    print(f"line.py and mean.sh: each of {len(asked)} settings that they do not follow is refused by its name")


def scikit(folder):
    draw = random.Random(1)
    rows = []
    for _ in range(300):
        kind = draw.randrange(3)
        rows.append([draw.gauss(3 * (kind == 0), 1), draw.gauss(3 * (kind == 1), 1), kind])
    (folder / "rows.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    command = [sys.executable, SILO / "scikit.py", folder / "rows.csv"]
    tensors, plan = {"coef": [3, 2], "intercept": [3]}, {"epochs": 20, "learning_rate": 0.01, "weight_decay": 0.0, "batch_size": 1}
    assert "training.batch_size = 32; it follows 1 alone" in refusal(command, tensors, {**plan, "batch_size": 32})
    assert "training.gradient_clip = 0.5" in refusal(command, tensors, {**plan, "gradient_clip": 0.5})
    _, before = run(command, tensors, plan, kind="evaluate")
    trained, after = run(command, tensors, plan)
    assert before["metrics"]["accuracy"] < 0.5 < 0.85 < after["metrics"]["accuracy"], (before, after)
    assert any(trained["coef"]) and any(trained["intercept"])
    print(f"scikit.py: accuracy {before['metrics']['accuracy']:.2f}, then {after['metrics']['accuracy']:.2f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        shell(pathlib.Path(name))
        unfollowed(pathlib.Path(name))
        if any(importlib.util.find_spec(package) is None for package in ("sklearn", "numpy")):
            print("SKIPPED: no scikit-learn, so scikit.py was not run")
        else:
            scikit(pathlib.Path(name))
    settings = json.loads((SILO / "deepspeed.json").read_text())
    assert settings["zero_optimization"]["stage"] == 3
    if importlib.util.find_spec("accelerate") is None:
        print("SKIPPED: no accelerate, so accelerate.yaml was not read")
    else:
        from accelerate.commands.config.config_args import load_config_from_file

        assert load_config_from_file(str(SILO / "accelerate.yaml")).num_processes == 16
        print("accelerate.yaml: accelerate reads it")
