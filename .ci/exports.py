"""Opens exports of one task with the tools they are for, and compares their numbers with the API's (.ci/exports.sh)."""

import csv
import json
import os
import sys

import numpy
import pyarrow.parquet
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

work = sys.argv[1]
rounds = sorted(json.load(open(f"{work}/rounds.json"))["data"], key=lambda round: (round["number"], round["attempt"]))
last = {round["number"]: round for round in rounds}
metrics = sorted(last[1]["metrics"])
assert len(rounds) >= 2 and metrics, rounds

rows = list(csv.DictReader(open(f"{work}/rounds.csv")))
table = pyarrow.parquet.read_table(f"{work}/rounds.parquet").to_pylist()
assert len(rows) == len(table) == len(rounds)
for text, row, round in zip(rows, table, rounds):
    assert row["number"] == int(text["number"]) == round["number"]
    assert row["opened_at"].timestamp() * 1000 == round["opened_at"]
    assert row["bytes_up"] == float(text["bytes_up"]) == round["bytes_up"]
    for name, metric in round["metrics"].items():
        assert row[f"metrics.{name}.value"] == float(text[f"metrics.{name}.value"]) == metric["value"]

events = EventAccumulator(f"{work}/tensorboard/demo").Reload()
for name in metrics:
    scalars = {scalar.step: scalar.value for scalar in events.Scalars(f"metrics/{name}/value")}
    assert scalars == {number: numpy.float32(round["metrics"][name]["value"]) for number, round in last.items()}, scalars

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
client = MlflowClient(tracking_uri=f"file://{work}/mlflow")
experiment = client.get_experiment_by_name("tributary")
(run,) = client.search_runs([experiment.experiment_id])
assert run.info.run_name == "demo" and run.info.status == "FINISHED", run.info
assert run.data.params["rounds.count"] == "2", run.data.params
for name in metrics:
    history = client.get_metric_history(run.info.run_id, f"metrics.{name}.value")
    assert {metric.step: metric.value for metric in history} == {
        number: round["metrics"][name]["value"] for number, round in last.items()
    }, history
print(f"pyarrow, TensorBoard and MLflow show {len(rounds)} rounds and {len(metrics)} metrics as the API does")
