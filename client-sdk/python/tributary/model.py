"""Using the model of a task."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _tributary
from .inputs import feed, inputs_of, is_graph
from .settings import path
from .update import numbers

if TYPE_CHECKING:
    import numpy as np


def views(flat: np.ndarray, tensors: Sequence[tuple[str, list[int]]]) -> dict[str, np.ndarray]:
    """The tensors of a flat vector, by name."""
    found = {}
    start = 0
    for name, shape in tensors:
        length = 1
        for size in shape:
            length *= size
        found[name] = flat[start : start + length].reshape(shape)
        start += length
    return found


class Model:
    """The model of a task on this device: the personalized one where there is one, else the last published one that was verified."""

    #: The model: an array of float32 for each tensor, by name.
    parameters: dict[str, np.ndarray]
    #: Of a published model; ``None`` of a personalized one.
    version: int | None
    #: SHA-256 of the published file; ``None`` of a personalized model.
    sha256: str | None
    #: The round that left a personalized model on the device; ``None`` of a published one.
    round: int | None
    #: Metrics measured on this device, by name; empty until a round that began with the model is answered, and for a task's last version.
    metrics: dict[str, float]
    #: The task's description of its model, if it has one.
    architecture: Any

    def __init__(self, native: _tributary.Model) -> None:
        self._native = native
        self.version, self.sha256, self.round = native.origin
        self.metrics = {name: value for name, value, _ in native.metrics}
        self.architecture = json.loads(native.architecture) if native.architecture else None
        self.parameters = views(native.values(), native.tensors)
        self._graph: _tributary.Graph | None = None

    @classmethod
    def load(
        cls,
        task: str,
        journal: str | os.PathLike[str],
        *,
        journal_key: str | os.PathLike[str] | None = None,
        journal_generation: str | os.PathLike[str] | None = None,
    ) -> Model | None:
        """The model of a task while no participant runs: from its journal, without a thread and without a network. ``None`` if the
        journal has none. A running participant has the journal for itself, and is asked with :meth:`Participant.model`.

        :raises JournalError: if the journal cannot be read, such as while a participant uses it.
        :raises ConfigurationError: if a path is none.
        """
        key = None if journal_key is None else path("journal_key", journal_key)
        generation = None if journal_generation is None else path("journal_generation", journal_generation)
        found = _tributary.Model.load(task, path("journal", journal), key, generation)
        return None if found is None else cls(found)

    def __repr__(self) -> str:
        what = f"version {self.version}" if self.round is None else f"personalized in round {self.round}"
        return f"<Model, {what}, {sum(array.size for array in self.parameters.values())} parameters>"

    def __getitem__(self, name: str) -> np.ndarray:
        return self.parameters[name]

    @property
    def is_personalized(self) -> bool:
        """Whether it was made on this device."""
        return self.round is not None

    def predict(self, inputs: Any) -> np.ndarray:
        """The first output of a model that is a graph, such as scores of classes before softmax, or numbers: an array with the examples
        as first axis.

        :param inputs: an array for each input of the graph, by name, with the examples as first axis; or the array itself if the graph has one
            input.
        :raises UpdateError: naming the input that is missing, unknown, not finite, or of another shape or type.
        :raises Error: if the model is no graph.
        """
        if not is_graph(self.architecture):
            raise _tributary.Error("the task's model is no graph: use `scores`, or run it from its parameters")
        if self._graph is None:
            self._graph = _tributary.Graph(json.dumps(self.architecture))
        values, shape = self._native.output(self._graph, *feed(inputs_of(self.architecture["graph"]), inputs))
        return values.reshape(shape)

    def scores(self, rows: Any) -> np.ndarray:
        """The scores of each class for each row of ``rows``, before softmax, if the model is one of the SDK's own. A single row may come as
        such; images are flattened in the order channel, row, column.

        :raises Error: if it is not, or if the rows do not fit, or are not all finite numbers.
        """
        import numpy as np

        try:
            table = np.atleast_2d(numbers("rows are", rows, 0))
        except _tributary.UpdateError as error:
            raise _tributary.Error(str(error)) from error
        width = math.prod(table.shape[1:])
        # A copy, since any thread may write to what was given while the native part computes without the interpreter's lock.
        with np.errstate(over="ignore"):
            flat = np.array(table.reshape(len(table), width), dtype=np.float32, order="C")
        if not np.isfinite(flat).all():
            raise _tributary.Error(f"row {int(np.argmin(np.isfinite(flat).all(axis=1)))} has a number that is not finite")
        scores = self._native.scores(flat)
        if len(scores) != len(flat):
            raise _tributary.Error(f"rows have {width} numbers, and the model takes another length")
        return scores
