"""An update as the model takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _tributary
from .nested import is_nested, named
from .program import _WRAPPERS, _is_counter, _on_host

if TYPE_CHECKING:
    import numpy as np


def copy_into(flat: np.ndarray, own: Mapping[str, np.ndarray], given: Any) -> None:
    """Checks every array of an update, then copies those that are not the model's own into it; ``own`` are the parts of ``flat``.

    :raises UpdateError: if one does not fit. Then nothing was copied.
    """
    import numpy as np

    update = _by_name(given, own)
    unknown = sorted(name for name, value in update.items() if name not in own and not _is_counter(value))
    missing = sorted(set(own) - set(update))
    if unknown or missing:
        said = [f"{what} {', '.join(map(repr, names))}" for what, names in (("without", missing), ("with unknown", unknown)) if names]
        raise _tributary.UpdateError(f"the update comes {' and '.join(said)}; the model's tensors are {', '.join(own)}")
    arrays = {}
    for name, place in own.items():
        array = _array(name, update[name])
        if array.shape != place.shape:
            raise _tributary.UpdateError(f"tensor {name!r} has the shape {array.shape}; the model's is {place.shape}")
        if _is_same(array, place):
            continue
        # Parts of the model under other names must not be overwritten before they are read.
        arrays[name] = array.copy() if np.may_share_memory(array, flat) else array
    with np.errstate(over="ignore"):  # An infinity is found, and told by its place.
        for name, array in arrays.items():
            np.copyto(own[name], array, casting="same_kind")


def _by_name(given: Any, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arrays by the model's names."""
    if hasattr(given, "state_dict"):
        # A task may have such a name itself.
        return {name if name in own else _WRAPPERS.sub("", name): value for name, value in given.state_dict().items()}
    if isinstance(given, Mapping):
        return named(given, own)
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        if is_nested(given, len(own)):
            return named(given, own)
        if len(given) != len(own):
            raise _tributary.UpdateError(f"the update has {len(given)} tensors; the model has {len(own)}")
        return dict(zip(own, given))
    kind = type(given).__name__
    raise _tributary.UpdateError(f"an update is a mapping of names to arrays, a sequence of arrays or a module, not {kind}")


def rows_of(features: Any, labels: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows of numbers, flat and as float32, the class of each, and the length of a row.

    :raises UpdateError: if they are no such things.
    """
    import numpy as np

    table, classes = numbers("features are", features, 2), _made("labels are", labels)
    is_class = classes.ndim == 1 and classes.dtype.kind in "iub"
    if not is_class or (classes.size and not 0 <= int(classes.min()) <= int(classes.max()) < 2**32):
        raise _tributary.UpdateError(
            f"labels are an array of {classes.dtype} of the shape {classes.shape}; they must be classes, whole numbers from 0 on, one a row"
        )
    if len(table) != len(classes):
        raise _tributary.UpdateError(f"there are {len(table)} rows and {len(classes)} labels")
    with np.errstate(over="ignore"):  # What is not finite shows in the training.
        flat = np.ascontiguousarray(table, dtype=np.float32).reshape(-1)
    return flat, classes.astype(np.uint32), math.prod(table.shape[1:])


def numbers(what: str, given: Any, dimensions: int) -> np.ndarray:
    """An array of numbers with at least so many dimensions.

    :raises UpdateError: if it is none.
    """
    array = _made(what, given)
    if array.ndim < dimensions or array.dtype.kind not in "fiub":
        raise _tributary.UpdateError(f"{what} an array of {array.dtype} of the shape {array.shape}; they must be rows of numbers")
    return array


def _made(what: str, given: Any) -> np.ndarray:
    """An array; of a tensor of PyTorch, too."""
    import numpy as np

    try:
        array = np.asarray(_on_host(given))
    except (RuntimeError, TypeError, ValueError) as error:
        # Such as nested lists of different lengths.
        raise _tributary.UpdateError(f"{what} nothing that NumPy makes an array of: {error}") from error
    # JAX brings a type of its own for bfloat16, which NumPy can convert and does not know as one of floats.
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _array(name: str, given: Any) -> np.ndarray:
    """An array of floating point numbers; a tensor of PyTorch among them, also one of counts."""
    array = _made(f"tensor {name!r} is", given)
    if _is_counter(given):
        return array.astype("f4")
    if array.dtype.kind != "f":
        raise _tributary.UpdateError(f"tensor {name!r} is of {array.dtype}; it must be of floating point numbers")
    return array


def _is_same(array: np.ndarray, place: np.ndarray) -> bool:
    """Whether it is this part of the model, trained in place."""
    seen, own = array.__array_interface__, place.__array_interface__
    return seen["data"][0] == own["data"][0] and array.dtype == place.dtype and array.strides == place.strides
