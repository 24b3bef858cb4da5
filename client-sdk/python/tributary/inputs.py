"""Examples of a graph: its inputs by name, with targets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _tributary
from .update import _made

if TYPE_CHECKING:
    import numpy as np

@dataclasses.dataclass(frozen=True)
class Input:
    """One input of a graph."""

    #: Its name, the argument of ``forward`` in PyTorch.
    name: str
    #: ``f32``, ``i64`` or ``bool``.
    element: str
    #: Its sizes: ``"batch"`` first, then numbers and at most ``"length"``.
    shape: tuple[int | str, ...]


#: Inputs in the graph's order, flat; the number of examples; the length of their sequences.
Fed = tuple[list["np.ndarray"], int, int]


def is_graph(architecture: Any) -> bool:
    """Whether a task's model is a graph."""
    return isinstance(architecture, Mapping) and architecture.get("kind") == "graph"


def inputs_of(graph: Mapping[str, Any]) -> list[Input]:
    """The inputs of a graph in JSON."""
    return [Input(one["name"], one["element"], tuple(_size(size) for size in one["shape"])) for one in graph["inputs"]]


def _size(size: Mapping[str, int]) -> int | str:
    if not size.get("factor"):
        return size.get("offset", 0)
    return "batch" if size.get("batch") else "length"


def feed(inputs: Sequence[Input], given: Any) -> Fed:
    """Arrays as a graph takes them: by name, or the array itself if the graph has one input.

    :raises UpdateError: naming the input that is missing, unknown, not finite, or of another shape or type.
    """
    arrays = _by_name(inputs, given)
    columns, counts, lengths = [], {}, {}
    for one in inputs:
        array = _numbers(one, arrays[one.name])
        sizes = _sizes(one, array)
        counts[one.name] = len(array)
        lengths.update({one.name: sizes["length"]} if "length" in sizes else {})
        columns.append(_flat(one, array))
    for what, found in (("examples", counts), ("positions in a sequence", lengths)):
        if len(set(found.values())) > 1:
            said = ", ".join(f"{name!r} has {count}" for name, count in found.items())
            raise _tributary.UpdateError(f"inputs differ in their number of {what}: {said}")
    return columns, next(iter(counts.values()), 0), next(iter(lengths.values()), 1)


def targets_of(loss: Mapping[str, Any], count: int, given: Any) -> np.ndarray:
    """Targets of so many examples as a loss takes them, flat: classes as uint32, or numbers as float32.

    :raises UpdateError: if they are of another type or number, or not finite.
    """
    import numpy as np

    array, kind = _made("targets are", given), str(loss.get("kind"))
    if array.ndim < 1 or len(array) != count:
        raise _tributary.UpdateError(f"there are {count} examples, and targets of the shape {array.shape}")
    if kind in ("cross_entropy", "next_token"):
        is_class = array.dtype.kind in "iub" and (not array.size or 0 <= int(array.min()) <= int(array.max()) < 2**32)
        if not is_class:
            raise _tributary.UpdateError(f"targets are an array of {array.dtype}; with {kind} they must be classes, whole numbers from 0 on")
        return np.array(array.reshape(-1), dtype=np.uint32)
    if array.dtype.kind not in "fiub":
        raise _tributary.UpdateError(f"targets are an array of {array.dtype}; with {kind} they must be numbers")
    return _finite("targets have", array)


def _by_name(inputs: Sequence[Input], given: Any) -> Mapping[str, Any]:
    names = [one.name for one in inputs]
    if not isinstance(given, Mapping):
        if len(inputs) != 1:
            raise _tributary.UpdateError(f"the model has the inputs {', '.join(names)}: give a mapping with an array for each")
        return {names[0]: given}
    unknown, missing = sorted(map(repr, set(given) - set(names))), [repr(name) for name in names if name not in given]
    if unknown or missing:
        said = [f"{what} {', '.join(wrong)}" for what, wrong in (("without", missing), ("with unknown", unknown)) if wrong]
        raise _tributary.UpdateError(f"inputs come {' and '.join(said)}; the model's are {', '.join(names)}")
    return given


def _numbers(one: Input, given: Any) -> np.ndarray:
    """The array of an input, if its elements are of the right kind."""
    array = _made(f"input {one.name!r} is", given)
    kinds = {"f32": ("fiub", "numbers"), "i64": ("iub", "whole numbers"), "bool": ("b", "truth values")}
    right, words = kinds[one.element]
    if array.dtype.kind not in right:
        raise _tributary.UpdateError(f"input {one.name!r} is an array of {array.dtype}; it must be of {words}")
    return array


def _sizes(one: Input, array: np.ndarray) -> dict[str, int]:
    """The batch and the length of an input."""
    expected = one.shape
    if "length" not in expected:
        fixed = [size for size in expected[1:] if isinstance(size, int)]
        # An image without its channel, or a row of the same numbers in the same order.
        is_same = [size for size in array.shape[1:] if size != 1] == [size for size in fixed if size != 1]
        if array.ndim and (is_same or array.shape[1:] == (math.prod(fixed),)):
            return {}
    elif array.ndim == len(expected):
        found = {size: actual for size, actual in zip(expected, array.shape) if isinstance(size, str)}
        if all(actual == found.get(str(size), size) for size, actual in zip(expected, array.shape)):
            return found
    sizes = ", ".join(map(str, expected))
    raise _tributary.UpdateError(f"input {one.name!r} has the shape {array.shape}; the model takes ({sizes})")


def _flat(one: Input, array: np.ndarray) -> np.ndarray:
    """A copy of the array, flat and in the graph's type."""
    import numpy as np

    if one.element == "f32":
        return _finite(f"input {one.name!r} has", array)
    if one.element == "bool":
        return np.array(array, dtype=np.bool_, order="C").reshape(-1)
    if array.size and not -(2**63) <= int(array.min()) <= int(array.max()) < 2**63:
        raise _tributary.UpdateError(f"input {one.name!r} has {array.max()}, which is no integer of 64 bits")
    return np.array(array, dtype=np.int64, order="C").reshape(-1)


def _finite(what: str, array: np.ndarray) -> np.ndarray:
    import numpy as np

    with np.errstate(over="ignore"):
        flat = np.array(array, dtype=np.float32, order="C").reshape(-1)
    if not np.isfinite(flat).all():
        at = tuple(int(index) for index in np.unravel_index(int(np.argmin(np.isfinite(flat))), array.shape))
        raise _tributary.UpdateError(f"{what} {array[at]} at {list(at)}, which is no finite number of 32 bits")
    return flat
