"""Computes what the test `files_for_onnx_runtime` has written, with ONNX Runtime, and compares.

usage: onnxruntime.py FOLDER (needs numpy, onnx, onnxruntime)"""

import json
import pathlib
import sys

import numpy
import onnx

# This file has the name of the package.
sys.path = [path for path in sys.path if pathlib.Path(path or ".").resolve() != pathlib.Path(__file__).parent.resolve()]
import onnxruntime

folder = pathlib.Path(sys.argv[1])
worst, count, wrong = 0.0, 0, []
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
for path in sorted(folder.glob("*.onnx")):
    told = json.loads(path.with_suffix(".json").read_text())
    array = lambda tensor: numpy.array(tensor["data"], tensor["type"]).reshape(tensor["shape"])
    try:
        onnx.checker.check_model(str(path), full_check=True)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        found = session.run([output["name"] for output in told["outputs"]], {tensor["name"]: array(tensor) for tensor in told["inputs"]})
        for output, values in zip(told["outputs"], found):
            expected = array(output)
            assert expected.shape == values.shape, (expected.shape, values.shape)
            error = numpy.abs(expected - values).max() / max(1.0, numpy.abs(expected).max())
            assert error <= 1e-5, (error, expected.flatten()[:8], values.flatten()[:8])
            worst = max(worst, error)
        count += 1
    except Exception as error:
        wrong.append(f"{path.stem}: {str(error)[:600]}")
print("\n".join(wrong))
print(f"ONNX Runtime {onnxruntime.__version__}: {count} files agree to {worst:.1e}, {len(wrong)} do not")
sys.exit(bool(wrong) or count == 0)
