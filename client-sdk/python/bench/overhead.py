#!/usr/bin/env python3
"""What a participant in Python costs beside one in Rust, in the same rounds: overhead.py TRIBUTARY SHIFT [PARAMETERS, 1000000].

TRIBUTARY is the program, SHIFT `client-sdk/ffi/examples/shift.rs`, built like the package that is installed. Two participants in Rust and one
in Python add one to every parameter, under secure aggregation. Each process's processor time and peak memory (`VmHWM`) are the kernel's; that
of a round is the difference between two lengths of a task, and that of a vector the difference between two sizes of the model.

The peak is told twice: as it comes, and with glibc's threshold for mappings of their own held at 128 KiB. As it comes, glibc raises the threshold
to the size of the first vector that is freed, and keeps room for such vectors in the arena of each thread.
"""

import json
import os
import pathlib
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

PARTICIPANT = """
import json, sys, tributary as tb
options = json.load(open(sys.argv[1]))
with tb.participant(options.pop("server"), ca=options.pop("ca_pem"), **options) as me:
    for task in me.tasks():
        for array in task.parameters.values():
            array += 1
        task.send(task.parameters, examples=10)
"""
SHORT, LONG, REPEATS = 2, 12, 3
HELD = {"MALLOC_MMAP_THRESHOLD_": str(128 << 10)}


def peak(pid):
    """Peak bytes of a process so far; 0 of one that has ended. Not `ru_maxrss`, which begins with those of the process that forked it."""
    with open(f"/proc/{pid}/status") as status:
        return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), 0)


def run(program, shift, parameters, rounds, environment):
    """Processor seconds and peak bytes of one participant in each language."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        folder = pathlib.Path(folder)
        command = [program, "--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", str(folder / "data")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=nowhere, text=True) as served:
            try:
                about = next(event for event in map(json.loads, served.stdout) if event["event"] == "serving")
                trust = ssl.create_default_context(cafile=about["ca"])

                def post(path, body):
                    headers = {"authorization": "Bearer " + about["token"], "content-type": "application/json"}
                    request = urllib.request.Request(about["url"] + path, json.dumps(body).encode(), headers)
                    return json.load(urllib.request.urlopen(request, context=trust))

                spec = {
                    "name": "shift",
                    "model": {"tensors": [{"name": "w", "shape": [parameters], "init": "zeros"}]},
                    "rounds": {"count": rounds, "select_max": 3},
                    "selection": {"cohort": {"count": 3}},
                    "aggregation": {"clip_range": 4.0},
                }
                post("/v1/tasks", {"spec": spec})
                running = {}
                for name in ("rust", "python", "other"):
                    options = {
                        "server": about["url"],
                        "ca_pem": pathlib.Path(about["ca"]).read_text(),
                        "token": post("/v1/enrollment-tokens", {"name": name})["token"],
                        "journal": str(folder / name),
                        "task": "shift",
                        "secure_aggregation": {"min_cohort": 3, "min_tolerated_colluders": 0},
                    }
                    (folder / f"{name}.json").write_text(json.dumps(options))
                    language = [sys.executable, "-c", PARTICIPANT] if name == "python" else [shift]
                    number = [] if name == "python" else ["1"]
                    command = [*language, str(folder / f"{name}.json"), *number]
                    started = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, env={**os.environ, **environment})
                    running[started.pid] = name
                used, peaks = {}, dict.fromkeys(running, 0)
                while running:
                    for pid in running:
                        peaks[pid] = max(peaks[pid], peak(pid))
                    pid, status, usage = os.wait4(-1, os.WNOHANG)
                    if pid == 0:
                        time.sleep(0.01)
                        continue
                    if pid == served.pid or status != 0:
                        sys.exit(f"{running.get(pid, 'the coordinator')} ended with {status}")
                    used[running.pop(pid)] = (usage.ru_utime + usage.ru_stime, peaks[pid])
                return used
            finally:
                served.terminate()


def main():
    program, shift = (os.path.realpath(argument) for argument in sys.argv[1:3])
    parameters = int(sys.argv[3]) if len(sys.argv) > 3 else 1_000_000
    languages = ("rust", "python")
    took, grown, held = ({language: [] for language in languages} for _ in range(3))
    for _ in range(REPEATS):
        short, long, small = (run(program, shift, *case, {}) for case in ((parameters, SHORT), (parameters, LONG), (10, LONG)))
        long_held, small_held = (run(program, shift, size, LONG, HELD) for size in (parameters, 10))
        for language in languages:
            took[language].append((long[language][0] - short[language][0]) / (LONG - SHORT))
            grown[language].append((long[language][1] - small[language][1]) / (4 * parameters))
            held[language].append((long_held[language][1] - small_held[language][1]) / (4 * parameters))
    rust, python = (statistics.median(took[language]) for language in languages)
    print(f"{parameters} parameters, secure aggregation among 3, medians of {REPEATS}")
    print(f"processor time of a round: Rust {1e3 * rust:.0f} ms, Python {1e3 * python:.0f} ms: {python / rust:.3f} x (goal: 1.1)")
    for how, models in (("as it comes", grown), ("with glibc's threshold held", held)):
        rust, python = (statistics.median(models[language]) for language in languages)
        print(f"peak memory above that of 10 parameters, {how}: Rust {rust:.2f} models, Python {python:.2f} (goal: one more)")


if __name__ == "__main__":
    main()
