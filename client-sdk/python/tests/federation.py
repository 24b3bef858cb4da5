"""A real coordinator for tests: `tributary serve`, from the program that TRIBUTARY_BINARY names."""

import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

import tributary as tb

#: Floors for cohorts of three: one party owns all participants here.
SMALL = {"min_cohort": 3, "min_tolerated_colluders": 0}


class Federation:
    """A coordinator in a folder of its own, until `stop`."""

    def __init__(self, settings):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tributary-python-"))
        self.process = subprocess.Popen(
            [os.environ["TRIBUTARY_BINARY"], "--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", self.folder / "data"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **settings},
        )
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "serving":
                break
        else:
            raise RuntimeError("the coordinator did not start")
        # Whoever does not read what is printed stops who prints.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.url, self.ca, self.token = event["url"], event["ca"], event["token"]
        self.operator = tb.Operator(self.url, self.token, ca=self.ca)

    def options(self, name, **more):
        """What a participant of this name needs to start."""
        return {
            "server": self.url,
            "ca": self.ca,
            "token": self.operator.enroll(name),
            "name": name,
            "journal": self.folder / name,
            "secure_aggregation": SMALL,
            **more,
        }

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def federation(**settings):
    """``settings`` of the coordinator are named as in its environment: ``TRIBUTARY_HTTP_POLL_MAX_MS="500"``."""
    running = Federation(settings)
    try:
        yield running
    finally:
        running.stop()


def line(name, rounds=2, cohort=3, **more):
    """A task about two tensors, w of shape [2, 3] and b of shape [2], which begin at zero."""
    return {
        "name": name,
        "model": {
            "tensors": [
                {"name": "w", "shape": [2, 3], "init": "zeros"},
                {"name": "b", "shape": [2], "init": "zeros"},
            ]
        },
        "training": {"epochs": 5, "learning_rate": 0.05},
        "rounds": {"count": rounds, "select_max": cohort},
        "selection": {"cohort": {"count": cohort}},
        "aggregation": {"clip_range": 8.0},
        "metrics": ["accuracy"],
        **more,
    }


def installed(*modules):
    """Skips a test, and says so, where one of the modules is not."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return unittest.skipIf(missing, f"SKIPPED: {', '.join(missing)} is not installed")


def each(work, arguments):
    """Runs `work` for each of the arguments at the same time; raises what the first that failed raised."""
    failures = []

    def run(argument):
        try:
            work(argument)
        except BaseException as error:  # noqa: BLE001, it is raised again
            failures.append(error)

    threads = [threading.Thread(target=run, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
