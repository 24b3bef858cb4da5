"""Models as graphs of operations, which the SDK trains on any device: docs/GRAPHS.md.

A graph comes from an ONNX file (:func:`import_onnx`) or from a module of PyTorch (:func:`tributary.task_from`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

from . import _tributary
from .initial import written
from .inputs import Fed, Input, feed, inputs_of
from .model import views
from .settings import made

if TYPE_CHECKING:
    import numpy as np

#: A loss by name, or with its settings as in ``[model.loss]`` of a task file: ``{"kind": "huber", "delta": 0.5}``.
Loss = Union[str, Mapping[str, Any]]

#: What becomes of running statistics of batch normalizations: ``frozen``, ``local`` or ``averaged``.
_BATCH_NORM = ("frozen", "local", "averaged")

#: Names of the files that :meth:`GraphModel.save` writes.
_GRAPH, _TENSORS = "model.graph.json", "model.safetensors"


@dataclasses.dataclass(frozen=True)
class Gradient:
    """The derivative of the output along a random direction of one parameter, computed twice."""

    #: Name and shape of the parameter.
    name: str
    shape: tuple[int, ...]
    #: By the gradient, and by a finite difference.
    gradient: float
    difference: float


class GraphModel:
    """A model that tasks carry as data, with its initial values. ``Operator.create(…, model=this)`` makes a task of it."""

    #: The loss with its settings: ``{"kind": "cross_entropy"}``.
    loss: dict[str, Any]
    #: Initial values: an array of float32 for each parameter, by name, in the graph's order.
    tensors: dict[str, np.ndarray]
    #: ``model.batch_norm`` of a task: ``frozen``, or ``local`` or ``averaged`` if running statistics are among the tensors.
    batch_norm: str
    #: Names of the graph's operations, each once.
    operations: list[str]
    #: What to look at before training.
    warnings: list[str]
    #: The gradient check of an imported file; empty if the gradients were compared with those of PyTorch.
    gradients: list[Gradient]

    def __init__(
        self, text: str, loss: Mapping[str, Any], tensors: Mapping[str, np.ndarray], report: Mapping[str, Any], batch_norm: str = "frozen"
    ) -> None:
        """Made by :func:`import_onnx` and :func:`tributary.task_from`; ``text`` is the graph as JSON."""
        self._text, self.batch_norm = text, batch_norm
        self.loss, self.tensors = dict(loss), dict(tensors)
        self.operations, self.warnings = list(report["operations"]), list(report["warnings"])
        self.gradients = [Gradient(**{**one, "shape": tuple(one["shape"])}) for one in report["gradients"]]
        self._native = _tributary.Graph(json.dumps(self.architecture))

    def __repr__(self) -> str:
        return f"<GraphModel, {self.loss['kind']}, {len(self.tensors)} tensors, {sum(array.size for array in self.tensors.values())} parameters>"

    @property
    def graph(self) -> dict[str, Any]:
        """The graph as a task file's ``model.graph`` names it."""
        return dict(json.loads(self._text))

    @property
    def architecture(self) -> dict[str, Any]:
        """The graph with its loss: ``model.architecture`` of a task."""
        return {"kind": "graph", "graph": self.graph, "loss": self.loss}

    @property
    def inputs(self) -> list[Input]:
        """What an example consists of."""
        return inputs_of(self.graph)

    def predict(self, inputs: Any) -> np.ndarray:
        """The first output for ``inputs``, with :attr:`tensors` as they are now; as :meth:`tributary.Model.predict`."""
        return self._output(self._flat(), feed(self.inputs, inputs))

    def save(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Writes ``model.graph.json`` and ``model.safetensors`` into ``folder``, which is made if it is missing. A task file names them
        as ``model.graph`` and ``model.initial``.

        :returns: the folder.
        :raises ConfigurationError: if a file cannot be written.
        """
        into = made("folder", folder, pathlib.Path)
        try:
            into.mkdir(parents=True, exist_ok=True)
            (into / _GRAPH).write_text(self._text, encoding="utf-8")
            (into / _TENSORS).write_bytes(written(self.tensors))
        except OSError as error:
            raise _tributary.ConfigurationError(f"the model cannot be written: {error}") from error
        return into

    def _flat(self) -> np.ndarray:
        import numpy as np

        return np.concatenate([np.zeros(0, np.float32), *(np.asarray(array, np.float32).reshape(-1) for array in self.tensors.values())])

    def _output(self, flat: np.ndarray, fed: Fed) -> np.ndarray:
        values, shape = self._native.output(flat, *fed)
        return values.reshape(shape)

    def _gradient(self, flat: np.ndarray, fed: Fed, weights: np.ndarray) -> dict[str, np.ndarray]:
        """The gradient of the sum of the first output times ``weights``, by parameter."""
        import numpy as np

        found = self._native.gradient(flat, *fed, np.ascontiguousarray(weights, np.float32).reshape(-1))
        return views(found, [(name, list(array.shape)) for name, array in self.tensors.items()])


def import_onnx(
    file: str | os.PathLike[str] | bytes,
    *,
    loss: Loss = "cross_entropy",
    tied: Iterable[str] = (),
    constants: Iterable[str] = (),
    names: Mapping[str, str] | None = None,
    length: Iterable[str] = (),
    sizes: Mapping[str, int] | None = None,
    values: Mapping[str, float] | None = None,
    outputs: Iterable[str] = (),
    dropout: bool = True,
    batch_norm: str = "frozen",
) -> GraphModel:
    """An ONNX file as a graph, as ``tributary model import`` makes it, with the gradient of every parameter checked.

    :param file: the path of an ONNX file, or its bytes.
    :param loss: ``cross_entropy``, ``next_token``, ``bce_with_logits``, ``mse``, ``huber`` or ``poisson``, or a mapping with its settings.
    :param tied: parameters that several nodes share on purpose.
    :param constants: tensors that do not train.
    :param names: new names of tensors by their names in the file.
    :param length: symbols of the sizes that are the length of sequences, if there are several symbols.
    :param sizes: fixed values of symbolic sizes.
    :param values: values of inputs that are single numbers; the graph goes without these inputs.
    :param outputs: the outputs to keep, the first one trains; by default all with the batch as first axis.
    :param dropout: whether devices drop elements in training as the file says.
    :param batch_norm: ``frozen`` trains by running statistics, which are constants; ``local`` and ``averaged`` by those of the batch.
    :raises ModelError: if it cannot be trained: the text names the node, tensor and reason.
    :raises ConfigurationError: if the file cannot be read.
    """
    if not isinstance(file, bytes):
        try:
            file = pathlib.Path(file).read_bytes()
        except (OSError, TypeError) as error:
            raise _tributary.ConfigurationError(f"the ONNX file {file!r} cannot be read: {error}") from error
    chosen = {"tied": tied, "constants": constants, "names": names, "length": length, "sizes": sizes, "values": values, "outputs": outputs}
    return imported(file, loss, options(**chosen, dropout=dropout, batch_norm=batch_norm), check=True)


def options(**given: Any) -> dict[str, Any]:
    """Choices of an import as the native part takes them; those left out are empty."""
    lists = ("tied", "constants", "parameters", "batch", "length", "outputs")
    chosen: dict[str, Any] = {name: _names(name, given.get(name) or ()) for name in lists}
    chosen.update({name: made(name, given.get(name) or {}, dict) for name in ("names", "sizes", "values")})
    mode = given.get("batch_norm", "frozen")
    if mode not in _BATCH_NORM:
        raise _tributary.ConfigurationError(f"batch_norm is {mode!r}; it must be one of {', '.join(_BATCH_NORM)}")
    chosen.update({"batch_norm": mode, "batch_statistics": mode != "frozen"})
    return {**chosen, "dropout": bool(given.get("dropout", True))}


def imported(file: bytes, loss: Loss, given: Mapping[str, Any], check: bool) -> GraphModel:
    """A graph from the bytes of an ONNX file; its gradients are compared with finite differences if ``check``."""
    about = {"kind": loss} if isinstance(loss, str) else made("loss", loss, dict)
    try:
        text, tensors, report = _tributary.import_graph(file, made("loss", about, json.dumps), dict(given), check)
    except (TypeError, OverflowError) as error:
        raise _tributary.ConfigurationError(f"an option of the import cannot be used: {error}") from error
    return GraphModel(text, about, {name: array.reshape(shape) for name, shape, array in tensors}, json.loads(report), given["batch_norm"])


def _names(what: str, given: Any) -> list[str]:
    if isinstance(given, str):
        raise _tributary.ConfigurationError(f"{what} is {given!r}; it must be a list of names")
    return made(what, given, list)
