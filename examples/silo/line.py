"""A program that trains for a participant, with Python's standard library alone: fits y = a x + b to this site's rows.

    tributary participant run … --task line --trainer 'python3 examples/silo/line.py rows.csv' --trainer-dir jobs

The rows are lines `x,y`. The task is line.toml.
"""
import csv, json, os, struct, sys

job = os.environ["TRIBUTARY_JOB"]
about = json.load(open(f"{job}/job.json"))
rows = [(float(x), float(y)) for x, y in csv.reader(open(sys.argv[1]))]


def write(name, data):
    """Whole or not at all."""
    with open(f"{job}/draft", "wb") as file:
        file.write(data)
    os.rename(f"{job}/draft", f"{job}/{name}")


# A safetensors file: the length of its header, the header, the numbers.
raw = open(f"{job}/model.safetensors", "rb").read()
start = 8 + struct.unpack("<Q", raw[:8])[0]
places = json.loads(raw[8:start])
read = lambda name: struct.unpack_from("<f", raw, start + places[name]["data_offsets"][0])[0]
a, b = read("a"), read("b")
loss = lambda: sum((a * x + b - y) ** 2 for x, y in rows) / len(rows)

if about["kind"] == "evaluate":
    write("result.json", json.dumps({"examples": len(rows), "metrics": {"loss": loss()}}).encode())
    sys.exit()
# A key at its usual value is absent, null or 0. Each step of gradient descent takes all rows.
plan = about["plan"]
unknown = [key for key in sorted(set(plan) - {"epochs", "steps", "batch_size", "learning_rate", "budget", "fairness"}) if plan[key]]
if plan["batch_size"] < len(rows):
    unknown.append("batch_size")
if unknown:
    write("refused", f"this program does not follow training.{unknown[0]} = {json.dumps(plan[unknown[0]])}".encode())
    sys.exit(75)
rate, steps = plan["learning_rate"], plan["steps"] or plan["epochs"]
for step in range(steps):
    errors = [(a * x + b - y, x) for x, y in rows]
    a -= rate * 2 * sum(error * x for error, x in errors) / len(rows)
    b -= rate * 2 * sum(error for error, _ in errors) / len(rows)
with open(f"{job}/progress.jsonl", "a") as file:
    file.write(json.dumps({"step": steps, "of": steps, "loss": loss()}) + "\n")
numbers = bytearray(raw)
struct.pack_into("<f", numbers, start + places["a"]["data_offsets"][0], a)
struct.pack_into("<f", numbers, start + places["b"]["data_offsets"][0], b)
write("trained.safetensors", numbers)
write("result.json", json.dumps({"examples": len(rows), "metrics": {"train_loss": loss()}}).encode())
