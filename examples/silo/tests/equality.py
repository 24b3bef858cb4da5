"""Each parallel example with two processes against one: 20 steps, the same weights to 1e-6. equality.py [EXAMPLE…]

Ends with 77, and says SKIPPED, without PyTorch.
"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import time

if any(importlib.util.find_spec(name) is None for name in ("torch", "safetensors")):
    print("SKIPPED: no PyTorch and safetensors, so no parallel example was compared with one process")
    sys.exit(77)

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]
import moe  # noqa: E402
import net  # noqa: E402
import torch  # noqa: E402
from folder import PLAN, SILO, Folder, distance  # noqa: E402

MOST = 1e-6
NET = ["ddp", "zero1", "fsdp", "tensor", "pipeline_1f1b", "accumulate", "activation_checkpointing", "batch_size_finder"]


def start(build):
    torch.manual_seed(3)
    return {name: value.detach().clone() for name, value in build().state_dict().items()}


def compare(name, found, expected, trained_from):
    """Both trained, and to the same."""
    moved = distance(expected, trained_from)
    if moved < 1e-2:
        raise AssertionError(f"{name}: one process did not train ({moved:.1e})")
    apart = distance(found, expected)
    print(f"{name:<26} {apart:.1e}  (training moved the model by {moved:.1e})", flush=True)
    if not apart <= MOST:
        raise AssertionError(f"{name}: two processes are {apart:.1e} from one; at most {MOST:.0e}")


def elastic(model, plain):
    """Killed, with all its processes, after half of the steps; one process goes on."""
    folder = Folder(model)
    started = folder.start("elastic.py", 2, slowly=True)
    while folder.steps() < 10 and started.poll() is None:
        time.sleep(0.01)
    folder.kill()
    started.communicate()
    begun = time.monotonic()
    found = folder.run("elastic.py", 1)
    sizes = {json.loads(line)["processes"] for line in (folder.path / "progress.jsonl").read_text().splitlines()}
    if sizes != {1, 2}:
        raise AssertionError(f"elastic: ran with {sizes} processes")
    print(f"{'elastic: 2, killed, 1':<26} recovered in {time.monotonic() - begun:.1f} s, its start and end included")
    compare("elastic: 2, killed, 1", found, plain, model)
    compare("elastic: 3", Folder(model).run("elastic.py", 3), plain, model)


def unfollowed(model):
    """An example refuses each setting of a plan that it does not follow, and names it; and it follows `accumulate`."""
    asked = {"gradient_clip": 1.0, "optimizer": {"name": "adam_w"}, "precision": "bf16", "proximal_mu": 0.01, "schedule": {"kind": "cosine"}}
    asked |= {"solver": "fed_nova", "warmup": {"steps": 5}}
    for script in ("plain.py", "zero1.py"):
        for key, value in asked.items():
            folder = Folder(model, {**PLAN, key: value})
            started = folder.start(script, 1)
            said, _ = started.communicate(timeout=300)
            told = (folder.path / "refused").read_text() if (folder.path / "refused").exists() else said
            if started.returncode != 75 or f"training.{key}" not in told:
                raise AssertionError(f"{script} ended with {started.returncode} where the plan has {key}: {told[-2000:]}")
    accumulated = Folder(model, {**PLAN, "batch_size": 16, "accumulate": 4}).run("plain.py", 1)
    compare("accumulate = 4", accumulated, Folder(model).run("plain.py", 1), model)
    print(f"plain.py and zero1.py: each of {len(asked)} settings that they do not follow is refused by its name")


def main(names):
    model = start(net.model)
    if not names:
        unfollowed(model)
    plain = Folder(model).run("plain.py", 1)
    for name in NET:
        if not names or name in names:
            compare(name, Folder(model).run(f"{name}.py", 2), plain, model)
    if not names or "elastic" in names:
        elastic(model, plain)
    if not names or "moe" in names:
        experts = start(moe.Moe)
        compare("moe", Folder(experts).run("moe.py", 2), Folder(experts).run("moe.py", 1), experts)
    if importlib.util.find_spec("peft") is None:
        print("SKIPPED: no peft, so lora_peft.py was not run")
    elif not names or "lora_peft" in names:
        told = subprocess.run([sys.executable, SILO / "lora_peft.py", "--tensors"], check=True, capture_output=True, text=True)
        torch.manual_seed(4)
        adapters = {tensor["name"]: torch.randn(tensor["shape"]) / 10 for tensor in json.loads(told.stdout)}
        compare("lora_peft", Folder(adapters).run("lora_peft.py", 2), Folder(adapters).run("lora_peft.py", 1), adapters)


if __name__ == "__main__":
    main(sys.argv[1:])
