"""Three silos of two processes each, under secure aggregation, against FedAvg of plain.py in one process. exact.py [EXAMPLE EXAMPLE EXAMPLE]

Each silo runs another example: ddp.py, fsdp.py and tensor.py, or those that are named. Each round is compared with FedAvg from the model
that it began with: no coordinate is apart by more than the grid of quantization and 1e-6 of its tensor's largest. Besides, the last model is
compared with three rounds of FedAvg without any of ours, to 1e-6 of its length. Needs TRIBUTARY_BINARY; ends with 77, and says SKIPPED,
without PyTorch.
"""
import importlib.util
import json
import pathlib
import shlex
import sys
import time

if any(importlib.util.find_spec(name) is None for name in ("torch", "safetensors")):
    print("SKIPPED: no PyTorch and safetensors, so no silo of several processes took part in a round")
    sys.exit(77)

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]
import net  # noqa: E402
from federation import Federation  # noqa: E402
from folder import SILO, Folder, distance  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

TASK = "silos"
ROUNDS, SILOS, MAX_WEIGHT, CLIP_RANGE, BITS = 3, 3, 512, 1.0, 32
#: Units of 1.0 for a weight of 1 (learning/src/quantize.rs). Each silo's error is below one unit, of a sum that is divided by all weights.
LEVELS = (2 ** (BITS - 1) - 1) // (SILOS * MAX_WEIGHT)
RELATIVE = 1e-6


def task(name):
    shapes = {name: list(value.shape) for name, value in net.model().state_dict().items()}
    tensors = ", ".join(
        f'{{ name = "{tensor}", shape = {shape}, init = {{ uniform = {{ bound = 0.25 }} }} }}' for tensor, shape in shapes.items()
    )
    return f"""
name = "{name}"
metrics = ["train_loss"]
[model]
tensors = [{tensors}]
[training]
steps = 20
batch_size = 64
learning_rate = 0.05
momentum = 0.9
[rounds]
count = {ROUNDS}
select_max = {SILOS}
[selection]
cohort = {{ count = {SILOS} }}
[aggregation]
max_weight = {MAX_WEIGHT}
modulus_bits = {BITS}
clip_range = {CLIP_RANGE}
[secure_aggregation]
max_corrupt_fraction = 0.0
"""


def average(model, jobs):
    """FedAvg of one process for each site."""
    total, weights = {}, 0
    for site, job in enumerate(jobs):
        folder = Folder(model)
        (folder.path / "job.json").write_text(json.dumps(job))
        trained = folder.run_here("plain.py", site)
        weight = json.loads((folder.path / "result.json").read_text())["examples"]
        weights += weight
        for name, value in trained.items():
            total[name] = total.get(name, 0) + weight * value.double()
    return {name: value / weights for name, value in total.items()}, weights


def job_of_round(seen, number):
    """The job of a round that a silo has seen; the last one where the round was tried again. Names are train-ROUND-MILLISECONDS."""
    kept = sorted(seen.glob(f"train-{number}-*.json"), key=lambda path: int(path.stem.rpartition("-")[2]))
    return json.loads(kept[-1].read_text())


def run(federation, examples):
    begun = time.monotonic()
    federation.create(task(TASK))
    jobs = [federation.path / f"seen-{site}" for site in range(SILOS)]
    silos = []
    for site, (example, seen) in enumerate(zip(examples, jobs, strict=True)):
        seen.mkdir()
        script = shlex.quote(str(SILO / f"{example}.py"))
        # Each job is kept, for its seed. Nothing is measured before a training.
        keep = f'! grep -q "evaluate" "$TRIBUTARY_JOB/job.json" || exit 75; cp "$TRIBUTARY_JOB/job.json" {shlex.quote(str(seen))}/$(basename "$TRIBUTARY_JOB").json'
        launch = f"{keep} && exec {shlex.quote(sys.executable)} -m torch.distributed.run --standalone --nproc-per-node {{processes}} {script} {site}"
        silos.append(federation.silo(TASK, site, launch, "--trainer-processes", "2"))
    federation.finish(TASK, silos)
    models = [load_file(federation.model(TASK, version)) for version in range(ROUNDS + 1)]
    chain, worst = {name: value.double() for name, value in models[0].items()}, 0.0
    for number in range(1, ROUNDS + 1):
        asked = [job_of_round(seen, number) for seen in jobs]
        expected, weights = average(models[number - 1], asked)
        allowed = SILOS * CLIP_RANGE / LEVELS / weights
        for name, value in expected.items():
            apart = (models[number][name].double() - value).abs()
            worst = max(worst, float((apart / (allowed + RELATIVE * value.abs().max())).max()))
        chain, _ = average({name: value.float() for name, value in chain.items()}, asked)
    moved, apart = distance(models[ROUNDS], models[0]), distance(models[ROUNDS], chain)
    print(
        f"{', '.join(examples)}: {SILOS} silos × 2 processes, {ROUNDS} rounds, masked: {apart:.1e} from FedAvg of one process (moved by {moved:.1e}); "
        f"worst coordinate of a round at {worst:.2f} of what is allowed (grid {allowed:.1e} + 1e-6); {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    if moved < 1e-2 or not worst <= 1.0 or not apart <= 1e-6:
        raise AssertionError(f"{examples}: the published model is not FedAvg of one process")


if __name__ == "__main__":
    with Federation() as running:
        run(running, sys.argv[1:] or ["ddp", "fsdp", "tensor"])
