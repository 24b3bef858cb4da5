#!/usr/bin/env python3
"""Runs the commands of pages as a reader would: tutorials.py PAGE… [--twice PAGE…], each in a bash and an empty folder of its own.

Pages after `--twice` run twice in one bash, as by a reader who repeats them while the first run's programs go on.

Blocks of `sh` run in their order and must succeed. Of `sh fails` each line must fail. `sh once` is what the environment has already: a build.
The programs that the page names are on the PATH.
"""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

FENCE = re.compile(r"^```(\w[^\n]*)\n(.*?)^```$", re.M | re.S)
LIMIT_S = 300


def script(page):
    parts = ["set -euo pipefail"]
    for kind, block in FENCE.findall(page):
        if kind == "sh":
            parts.append(block)
        elif kind == "sh fails":
            parts += [f"if {line}; then echo 'this should have failed: {line}'; exit 1; fi" for line in block.splitlines()]
        elif kind.startswith("sh") and kind != "sh once":
            sys.exit(f"no such kind of block: {kind}")
    return "\n".join(parts)


def run(commands):
    """How commands of a shell ended, and what they said."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        # A session of its own: what the page starts ends with it. A file, since what it leaves running holds the output.
        # Folders that it makes with `mktemp` go with its own.
        own = {**os.environ, "FOLDER": folder, "TMPDIR": folder}
        command = ["bash", "-c", commands]
        shell = subprocess.Popen(command, cwd=folder, env=own, stdout=output, stderr=output, start_new_session=True)
        try:
            status = shell.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            status = f"still running after {LIMIT_S} s"
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing that it started is left
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        output.seek(0)
        return status, output.read()


def main():
    times = 1
    for path in sys.argv[1:]:
        if path == "--twice":
            times = 2
            continue
        started = time.monotonic()
        commands = ['cd "$FOLDER"\n' + script(pathlib.Path(path).read_text())] * times
        status, output = run("\n".join(commands))
        if status != 0:
            sys.exit(f"{output}\n{path}: {status}")
        print(f"{path}: its commands ran{' twice' * (times == 2)}, in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
