"""Opens exports of tasks with the tools they are for, and compares their numbers with the API's (.ci/exports.sh)."""

import csv
import json
import os
import sys

import numpy
import pyarrow.parquet
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

work, tasks = sys.argv[1], sys.argv[2:]


def rounds_of(task):
    """What the API shows of the task's rounds, in the order of their opening."""
    return sorted(json.load(open(f"{work}/{task}.json"))["data"], key=lambda round: (round["number"], round["attempt"]))


def figures(round):
    """Every number of a round by the name of its column, from what the API shows."""
    found = {name: round[name] for name in ("seconds", "cohort", "reported", "dropped", "bytes_up", "bytes_down")}
    found |= {f"epsilon.{name}": spent for name, spent in (round.get("epsilon") or {}).items()}
    for name, metric in round["metrics"].items():
        found |= {f"metrics.{name}.value": metric["value"], f"metrics.{name}.examples": metric["count"]}
    for name, of in round.get("distributions", {}).items():
        found |= {f"distributions.{name}.{part}": of[part] for part in ("participants", "p10", "p25", "p50", "p75", "p90")}
    for phase in round["phases"]:
        if phase["ended_at"] is not None:
            found[f"phases.{phase['state']}.seconds"] = (phase["ended_at"] - phase["started_at"]) / 1000
        found[f"phases.{phase['state']}.count"] = phase["count"]
    return {name: value for name, value in found.items() if value is not None}


known = {task: rounds_of(task) for task in tasks}
all_rounds = [(task, round) for task in tasks for round in known[task]]
names = sorted({name for _, round in all_rounds for name in figures(round)})
kinds = {name.split(".")[0] for name in names}
assert kinds >= {"epsilon", "metrics", "distributions", "phases"} and all(len(rounds) >= 2 for rounds in known.values()), names

rows = list(csv.DictReader(open(f"{work}/rounds.csv")))
table = pyarrow.parquet.read_table(f"{work}/rounds.parquet").to_pylist()
assert len(rows) == len(table) == len(all_rounds)
assert {name for name in rows[0] if name in names or "." in name} == {name for name in table[0] if name in names or "." in name} == set(names)
for text, row, (task, round) in zip(rows, table, all_rounds):
    assert row["task_name"] == text["task_name"] == task
    assert row["number"] == int(text["number"]) == round["number"]
    assert row["opened_at"].timestamp() * 1000 == round["opened_at"]
    shown = figures(round)
    for name in names:
        assert row[name] == shown.get(name), (task, name, row[name], shown.get(name))
        assert (float(text[name]) if text[name] else None) == shown.get(name), (task, name, text[name], shown.get(name))


def by_step(task):
    """Each number of the task that has one, by the number of the round: of several attempts, the last."""
    steps = {}
    for round in known[task]:
        for name, value in figures(round).items():
            steps.setdefault(name, {})[round["number"]] = value
    return steps


def opened_by_mlflow(uri):
    """The client, and its runs by the tasks' names."""
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("tributary")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert runs.keys() == set(tasks), runs.keys()
    return client, runs


os.environ.pop("MLFLOW_ALLOW_FILE_STORE", None)
migrated = opened_by_mlflow(f"sqlite:///{work}/mlflow.db")
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
stores = [migrated, opened_by_mlflow(f"file://{work}/mlflow")]
for task in tasks:
    events = EventAccumulator(f"{work}/tensorboard/{task}").Reload()
    steps = by_step(task)
    assert sorted(events.Tags()["scalars"]) == sorted(name.replace(".", "/") for name in steps), events.Tags()["scalars"]
    for name, values in steps.items():
        scalars = {scalar.step: scalar.value for scalar in events.Scalars(name.replace(".", "/"))}
        assert scalars == {number: numpy.float32(value) for number, value in values.items()}, (task, name, scalars)
for task, (client, runs) in ((task, store) for task in tasks for store in stores):
    steps, run = by_step(task), runs[task]
    assert run.info.status == "FINISHED" and run.data.params["rounds.count"] == "2", run
    assert run.data.metrics.keys() == steps.keys(), run.data.metrics.keys()
    for name, values in steps.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert {metric.step: metric.value for metric in history} == values, (task, name, history)
print(
    f"pyarrow, TensorBoard and MLflow show {len(all_rounds)} rounds of {len(tasks)} tasks and {len(names)} columns as the API does, "
    "with epsilon, distributions and phases"
)
