"""What a second process is worth here, as `tributary silo report` says it of ddp.py; nothing is promised for other hardware. scaling.py

Needs TRIBUTARY_BINARY; ends with 77, and says SKIPPED, without PyTorch.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys

if any(importlib.util.find_spec(name) is None for name in ("torch", "safetensors")):
    print("SKIPPED: no PyTorch and safetensors, so nobody measured what a second process is worth")
    sys.exit(77)

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]
import net  # noqa: E402
from folder import PLAN, Folder  # noqa: E402

plan = {**PLAN, "steps": 100, "batch_size": 256}
folders = [Folder(net.model().state_dict(), plan) for _ in range(2)]
for processes, folder in enumerate(folders, 1):
    folder.run("ddp.py", processes)
told = [folder.path / "progress.jsonl" for folder in folders]
subprocess.run([os.environ["TRIBUTARY_BINARY"], "silo", "report", *told], check=True)
