"""`tritonclient[http]` as it comes from PyPI, against a server of models: serving_client.py URL MODEL WIDTH (.ci/serving.sh)."""
import sys

import numpy
import tritonclient.http as triton

url, name, width = sys.argv[1].removeprefix("http://"), sys.argv[2], int(sys.argv[3])
client = triton.InferenceServerClient(url)
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(name)
assert client.get_server_metadata()["name"] == "tributary"
metadata = client.get_model_metadata(name)
assert metadata["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, width]}], metadata
version = metadata["versions"][0]
assert client.is_model_ready(name, version) and client.get_model_metadata(name, version)["versions"] == [version]

rows = numpy.random.default_rng(1).normal(size=(3, width)).astype(numpy.float32)
said = []
for binary_in in (True, False):
    for outputs in (None, [triton.InferRequestedOutput("scores", binary_data=True), triton.InferRequestedOutput("classes", binary_data=False)]):
        tensor = triton.InferInput("input", list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows, binary_data=binary_in)
        answer = client.infer(name, [tensor], outputs=outputs, request_id="7", headers={"tributary-key": "ward-7"})
        response = answer.get_response()
        assert response["id"] == "7" and response["model_name"] == name, response
        scores, classes = answer.as_numpy("scores"), answer.as_numpy("classes")
        assert scores.dtype == numpy.float32 and classes.dtype == numpy.int64 and classes.shape == (3,)
        assert (scores.argmax(axis=1) == classes).all()
        said.append(scores)
assert all((one == said[0]).all() for one in said)
wrong = triton.InferInput("input", [1, width + 1], "FP32")
wrong.set_data_from_numpy(numpy.zeros((1, width + 1), numpy.float32))
try:
    client.infer(name, [wrong])
    raise SystemExit("a wrong shape was taken")
except triton.InferenceServerException as error:
    assert "its shape is" in error.message(), error
print(f"tritonclient: {name} version {version} answers, binary and not")
