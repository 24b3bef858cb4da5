"""`tributary model export`, opened by ONNX Runtime and by Triton's own description of a model, against what `tributary infer serve` answers:
onnx.py BINARY FOLDER (.ci/serving.sh)."""
import hashlib
import importlib.util
import json
import pathlib
import struct
import subprocess
import sys
import tomllib
import urllib.request

import numpy
import onnxruntime
from google.protobuf import text_format

binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
draw = numpy.random.default_rng(3)


def gru(layers, vocabulary=11, embedding=8, hidden=16):
    tensors = {"embedding.weight": (vocabulary, embedding)}
    for layer in range(layers):
        inputs = embedding if layer == 0 else hidden
        tensors.update({f"gru.weight_ih_l{layer}": (3 * hidden, inputs), f"gru.weight_hh_l{layer}": (3 * hidden, hidden)})
        tensors.update({f"gru.bias_ih_l{layer}": (3 * hidden,), f"gru.bias_hh_l{layer}": (3 * hidden,)})
    return {**tensors, "fc.weight": (vocabulary, hidden), "fc.bias": (vocabulary,)}


MODELS = {
    "linear": {"fc.weight": (10, 60), "fc.bias": (10,)},
    "mlp": {"fc1.weight": (30, 20), "fc1.bias": (30,), "fc2.weight": (9, 30), "fc2.bias": (9,), "fc3.weight": (4, 9), "fc3.bias": (4,)},
    "cnn": {
        "conv1.weight": (32, 1, 5, 5), "conv1.bias": (32,), "conv2.weight": (64, 32, 5, 5), "conv2.bias": (64,),
        "fc1.weight": (512, 3136), "fc1.bias": (512,), "fc2.weight": (10, 512), "fc2.bias": (10,),
    },
    "gru": gru(1),
    "gru2": gru(2),
}


def write(path, tensors):
    """A model with numbers of about the size that training leaves."""
    header, parts, at = {}, [], 0
    for name, shape in tensors.items():
        part = draw.normal(size=shape).astype("<f4") / numpy.float32(max(shape[-1], 1) ** 0.5)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + part.nbytes]}
        parts.append(part.tobytes())
        at += part.nbytes
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


GRAPHS = {"residual": "cross_entropy", "transformer": "next_token", "recurrent": "next_token", "table": "mse"}
IMPORTED = pathlib.Path(__file__).parent.parent / "client-sdk" / "src" / "train" / "graph" / "imported"


def imported(name, loss):
    """A network from PyTorch as a version of a task: the graph is in the version's record and in a task file."""
    place = models / name / "7"
    place.mkdir(parents=True)
    graph, weights = place / "net.graph.json", place / "model.safetensors"
    tied = ["--tied", "embed.weight"] if name == "transformer" else []
    command = [binary, "model", "import", IMPORTED / f"{name}.onnx", "--loss", loss, "--out", graph, "--weights", weights, *tied]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    architecture = {"kind": "graph", "graph": json.loads(graph.read_text()), "loss": {"kind": loss}}
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    record = {"task": "00000000-0000-0000-0000-000000000001", "sha256": digest, "architecture": architecture}
    (place / "record.json").write_text(json.dumps(record))
    task = f'name = "{name}"\n[selection.cohort]\ncount = 3\n[model]\ngraph = "net.graph.json"\nloss = {{ kind = "{loss}" }}\n'
    (place / "task.toml").write_text(task)


#: Scaled numbers, filled in or indicated, and words: nine inputs.
TABLE = """name = "wards"
[selection.cohort]
count = 3
[model]
architecture = { kind = "mlp", hidden = [30] }
[model.table]
features = [
    { column = "age", low = 0, high = 100, missing = "indicator", mean = 48 },
    { column = "ward", one_of = ["icu", "er"], other = true, missing = "indicator" },
    { column = "pulse", missing = "median", median = 70 },
    { column = "smokes", one_of = ["no", "yes"], missing = "no" },
]
label = { column = "outcome", one_of = ["a", "b", "c", "d"] }
"""


def with_columns():
    """A model of a table, whose record and task file name its columns."""
    weights, place = models / "wards" / "7" / "model.safetensors", models / "wards" / "7"
    write(weights, {"fc1.weight": (30, 9), "fc1.bias": (30,), "fc2.weight": (4, 30), "fc2.bias": (4,)})
    task = tomllib.loads(TABLE)
    record = {
        "task": "00000000-0000-0000-0000-000000000001", "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "architecture": {"kind": "mlp", "inputs": 9, "hidden": [30], "classes": 4}, "table": task["model"]["table"],
    }
    (place / "record.json").write_text(json.dumps(record))
    (place / "task.toml").write_text(TABLE)


def compare_columns():
    """ONNX Runtime's scores from raw cells against the server's."""
    place, onnx = models / "wards" / "7", folder / "wards.onnx"
    export = [binary, "--format", "json", "model", "export", place / "model.safetensors", "--task", place / "task.toml"]
    subprocess.run([*export, "--columns", "--onnx", onnx], check=True, stdout=subprocess.DEVNULL)
    session, nan = onnxruntime.InferenceSession(onnx), float("nan")
    cells = {
        "age": [35, 100, nan, 0], "ward": ["icu", "burns", "er", ""], "pulse": [nan, 60.5, 70, 120], "smokes": ["yes", "no", "", "yes"],
    }
    assert {taken.name: taken.type for taken in session.get_inputs()} == {
        name: "tensor(float)" if isinstance(column[0], (int, float)) else "tensor(string)" for name, column in cells.items()
    }
    feeds, inputs = {}, []
    for name, column in cells.items():
        is_text = isinstance(column[0], str)
        feeds[name] = numpy.array(column, dtype=object if is_text else numpy.float32).reshape(-1, 1)
        data = [None if cell != cell else cell for cell in column]
        inputs.append({"name": name, "shape": [len(column), 1], "datatype": "BYTES" if is_text else "FP32", "data": data})
    request = urllib.request.Request(f"{url}/v2/models/wards/infer", json.dumps({"inputs": inputs}).encode())
    with urllib.request.urlopen(request) as answer:
        ours = {output["name"]: numpy.array(output["data"]).reshape(output["shape"]) for output in json.load(answer)["outputs"]}
    scores, classes = session.run(["scores", "classes"], feeds)
    worst = numpy.abs(scores - ours["scores"]).max() / numpy.abs(scores).max()
    assert worst < 1e-5 and (classes == ours["classes"]).all(), worst
    print(f"wards: ONNX Runtime computes our scores from raw numbers, words and empty cells to {worst:.1e}")


def ask_graph(name, tensors):
    """The outputs by name; floats and integers of 64 bits."""
    kinds = {"float32": "FP32", "int64": "INT64"}
    inputs = [{"name": key, "shape": list(tensor.shape), "datatype": kinds[str(tensor.dtype)], "data": tensor.reshape(-1).tolist()}
              for key, tensor in tensors.items()]
    request = urllib.request.Request(f"{url}/v2/models/{name}/infer", json.dumps({"inputs": inputs}).encode())
    with urllib.request.urlopen(request) as answer:
        return {output["name"]: numpy.array(output["data"]).reshape(output["shape"]) for output in json.load(answer)["outputs"]}


def compare_graph(name):
    """ONNX Runtime's outputs against the server's, at several batches and lengths."""
    place = models / name / "7"
    export = [binary, "--format", "json", "model", "export", place / "model.safetensors", "--task", place / "task.toml"]
    subprocess.run([*export, "--triton", repository, "--name", name, "--model-version", "7"], check=True, stdout=subprocess.DEVNULL)
    session = onnxruntime.InferenceSession(repository / name / "7" / "model.onnx")
    config = text_format.Parse((repository / name / "config.pbtxt").read_text(), triton.ModelConfig())
    assert [taken.name for taken in session.get_inputs()] == [taken.name for taken in config.input], config
    worst = 0.0
    for sizes in ({"batch": 1, "length": 3}, {"batch": 5, "length": 7}):
        tensors = {}
        for taken in session.get_inputs():
            shape = [sizes.get(size, size) for size in taken.shape]
            is_text = taken.type == "tensor(int64)"
            tensors[taken.name] = draw.integers(0, 5, size=shape) if is_text else draw.normal(size=shape).astype(numpy.float32)
        ours = ask_graph(name, tensors)
        for output, values in zip(session.get_outputs(), session.run(None, tensors)):
            assert values.shape == ours[output.name].shape, (name, values.shape, ours[output.name].shape)
            worst = max(worst, numpy.abs(values - ours[output.name]).max() / numpy.abs(values).max())
    assert worst < 1e-5, (name, worst)
    print(f"{name}: ONNX Runtime computes the outputs of our graph to {worst:.1e}")


def ask(name, tensor, datatype):
    data = {"name": "input", "shape": list(tensor.shape), "datatype": datatype, "data": tensor.reshape(-1).tolist()}
    request = urllib.request.Request(f"{url}/v2/models/{name}/infer", json.dumps({"inputs": [data]}).encode())
    with urllib.request.urlopen(request) as answer:
        outputs = {output["name"]: output for output in json.load(answer)["outputs"]}
    return [numpy.array(outputs[name]["data"]).reshape(outputs[name]["shape"]) for name in ("scores", "classes")]


models, repository = folder / "models", folder / "repository"
for name, tensors in MODELS.items():
    write(models / name / "7" / "model.safetensors", tensors)
for name, loss in GRAPHS.items():
    imported(name, loss)
with_columns()
# Triton's own schema, without its client for gRPC.
place = pathlib.Path(importlib.util.find_spec("tritonclient").submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
spec = importlib.util.spec_from_file_location("model_config_pb2", place)
triton = importlib.util.module_from_spec(spec)
spec.loader.exec_module(triton)

names = [word for name in [*MODELS, *GRAPHS, "wards"] for word in ("--task", name)]
serve = [binary, "--format", "json", "infer", "serve", "--models", models, *names, "--listen", "127.0.0.1:0"]
server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
try:
    url = next(event["url"] for event in map(json.loads, server.stdout) if event["event"] == "serving")
    for name in MODELS:
        export = [binary, "--format", "json", "model", "export", models / name / "7" / "model.safetensors"]
        subprocess.run([*export, "--triton", repository, "--name", name, "--model-version", "7"], check=True, stdout=subprocess.DEVNULL)
        session = onnxruntime.InferenceSession(repository / name / "7" / "model.onnx")
        config = text_format.Parse((repository / name / "config.pbtxt").read_text(), triton.ModelConfig())
        assert config.name == name and config.max_batch_size == 32 and config.dynamic_batching.max_queue_delay_microseconds == 10000
        taken = session.get_inputs()[0]
        # The batch is left out.
        assert [dim if isinstance(dim, int) else -1 for dim in taken.shape[1:]] == list(config.input[0].dims), config
        assert [output.name for output in session.get_outputs()] == [output.name for output in config.output] == ["scores", "classes"]
        worst = 0.0
        for batch in (1, 5):
            is_text = taken.type == "tensor(int64)"
            if is_text:
                tensor = draw.integers(0, MODELS[name]["fc.bias"][0], size=(batch, 6))
            else:
                tensor = draw.normal(size=(batch, taken.shape[1])).astype(numpy.float32)
            scores, classes = session.run(None, {"input": tensor})
            ours, ours_classes = ask(name, tensor, "INT64" if is_text else "FP32")
            assert scores.shape == ours.shape and classes.shape == ours_classes.shape, (name, scores.shape, ours.shape)
            worst = max(worst, numpy.abs(scores - ours).max() / numpy.abs(ours).max())
            assert (classes == ours_classes).all(), name
        assert worst < 1e-5, (name, worst)
        print(f"{name}: ONNX Runtime {onnxruntime.__version__} computes our scores to {worst:.1e}, and Triton's schema takes its description")
    for name in GRAPHS:
        compare_graph(name)
    compare_columns()
finally:
    server.terminate()
    server.wait()
