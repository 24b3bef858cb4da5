"""A silo's rank, program or participant is killed in each round, at a random moment: every round completes, and publishes the bytes that
nobody's kill changes. kills.py [MOMENTS, 3] [SEED]. With Python's standard library; needs TRIBUTARY_BINARY, and Linux.
"""
import hashlib
import json
import os
import pathlib
import random
import shlex
import signal
import sys
import time

from federation import Federation

MOMENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
STEPS, SECONDS, SILOS = 25, 0.02, 3
STUB = pathlib.Path(__file__).resolve().parent / "stub.py"
#: Until there is progress again.
MOST_SECONDS = 60.0


def task(name):
    return f"""
name = "{name}"
metrics = ["train_loss"]
[model]
tensors = [{{ name = "w", shape = [50], init = "zeros" }}]
[rounds]
count = {MOMENTS}
[selection]
cohort = {{ count = {SILOS} }}
[secure_aggregation]
max_corrupt_fraction = 0.0
"""


class Silo:
    """The one that is killed."""

    def __init__(self, federation, name, trainer):
        self.federation, self.name, self.trainer = federation, name, trainer
        self.process = federation.silo(name, 0, trainer)

    def job(self, number):
        folders = list((self.federation.path / "jobs-0").glob(f"train-{number}-*"))
        return folders[0] if folders else None

    def progress(self, number):
        """Lines of progress of a round's job."""
        folder = self.job(number)
        try:
            return len((folder / "progress.jsonl").read_text().splitlines()) if folder else 0
        except FileNotFoundError:
            return 0

    def rank(self, number):
        """The process that takes the steps of a round's job."""
        try:
            return (self.job(number) / "checkpoint" / "rank").read_text()
        except (FileNotFoundError, TypeError):
            return None

    def kill(self, what, number):
        """Whether it was there to be killed."""
        if what == "participant":
            self.process.kill()
            self.process.wait()
            self.process = self.federation.silo(self.name, 0, self.trainer, enrolled=True)
            return True
        try:
            os.kill(int((self.job(number) / "checkpoint" / what).read_text()), signal.SIGKILL)
            return True
        except (FileNotFoundError, ProcessLookupError, TypeError):
            return False


def run(federation, name, draw):
    """The digests of all versions, for how long nothing went on after each kill, and how many ends of the program were told."""
    federation.create(task(name))
    trainer = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(STUB))} {STEPS} {SECONDS}"
    silo = Silo(federation, name, trainer)
    others = [federation.silo(name, index, trainer) for index in range(1, SILOS)]
    waited = []
    for number in range(1, MOMENTS + 1 if name != "undisturbed" else 1):
        # From the program's first line to the last but one.
        moment, deadline = draw.randrange(1, STEPS - 1), time.monotonic() + 300
        while silo.progress(number) < moment and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(draw.uniform(0, SECONDS))
        before, stepping, folder = silo.progress(number), silo.rank(number), silo.job(number)
        if not silo.kill(name, number):
            raise AssertionError(f"round {number}: no {name} was there to be killed after step {before} (seed {SEED})")
        begun = time.monotonic()
        # Another process takes the next step: the one before may go on until the participant ends it.
        lines = None
        while silo.job(number) is not None and silo.process.poll() is None and time.monotonic() - begun < MOST_SECONDS:
            if lines is None and silo.rank(number) != stepping:
                lines = silo.progress(number)
            if lines is not None and (silo.progress(number) > lines or lines >= STEPS):
                break
            time.sleep(0.005)
        waited.append(time.monotonic() - begun)
        if silo.job(number) not in (None, folder):
            raise AssertionError(f"round {number}: {silo.job(number)} was begun, and {folder} thrown away (seed {SEED})")
    federation.finish(name, [silo.process, *others])
    digests = [hashlib.sha256(federation.model(name, version).read_bytes()).hexdigest() for version in range(MOMENTS + 1)]
    said = [json.loads(line) for line in (federation.path / "said-0").read_text().splitlines() if line.startswith("{")]
    return digests, waited, sum(event["event"] == "program_failed" for event in said)


def main():
    draw = random.Random(SEED)
    with Federation() as federation:
        undisturbed, _, _ = run(federation, "undisturbed", draw)
    if len(set(undisturbed)) != MOMENTS + 1:
        raise AssertionError("nothing was trained")
    for what in ("rank", "program", "participant"):
        with Federation() as federation:
            digests, waited, told = run(federation, what, draw)
        if digests != undisturbed:
            raise AssertionError(f"{what}: {digests} are not {undisturbed} (seed {SEED})")
        print(
            f"{what:<12} killed at {MOMENTS} random moments: {MOMENTS} rounds completed, the same SHA-256; "
            f"steps went on after {sum(waited) / len(waited):.2f} s on average, {max(waited):.2f} s at most",
            flush=True,
        )
        if max(waited) > MOST_SECONDS:
            raise AssertionError(f"{what}: nothing went on for {max(waited)} s (seed {SEED})")
        if told != (0 if what == "participant" else MOMENTS):
            raise AssertionError(f"{what}: {told} ends of the program were told (seed {SEED})")


if __name__ == "__main__":
    main()
