"""The model that a task starts from: arrays by name, as a safetensors file that is uploaded in parts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ._tributary import ConfigurationError
from .nested import named

if TYPE_CHECKING:
    import numpy as np

#: Bytes of a part of an upload; the last one may be shorter.
PART = 8 << 20


def model_file(model: Any) -> bytes:
    """A model as a safetensors file.

    ``model`` is the path of such a file, a :class:`tributary.GraphModel`, a ``torch.nn.Module``, a mapping of arrays by name, or arrays
    within nested dictionaries as JAX and Flax have them (their names are joined by dots). Floating-point arrays become 32 bits; others
    are left out.

    :raises ConfigurationError: if the file cannot be read, or nothing in ``model`` is a floating-point array.
    """
    if isinstance(model, (str, os.PathLike)):
        try:
            with open(model, "rb") as file:
                return file.read()
        except OSError as error:
            raise ConfigurationError(f"the model {os.fspath(model)} cannot be read: {error}") from error
    given = model.state_dict() if hasattr(model, "state_dict") else getattr(model, "tensors", model)
    arrays = {name: array for name, value in named(given, {}).items() if (array := _floats(value)) is not None}
    if not arrays:
        raise ConfigurationError(f"a {type(model).__name__} without floating-point arrays is no model")
    return written(arrays)


def tensors(file: bytes) -> list[dict[str, Any]]:
    """The floating-point tensors of a safetensors file, as a task declares them, in the order of their data.

    :raises ConfigurationError: if it is no such file.
    """
    try:
        header = json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")])
        about = [(name, tensor) for name, tensor in header.items() if name != "__metadata__"]
        about.sort(key=lambda named: named[1]["data_offsets"])
        return [{"name": name, "shape": tensor["shape"]} for name, tensor in about if "F" in tensor["dtype"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"the model is no safetensors file: {error!r}") from error


def upload(file: bytes, put_json: Callable[[str, Any], Any], put_bytes: Callable[[str, bytes], Any]) -> str:
    """Uploads a file, without the parts that the coordinator has; returns what a task names it by."""
    parts = [file[start : start + PART] for start in range(0, len(file), PART)]
    digests = [hashlib.sha256(part).hexdigest() for part in parts]
    digest = hashlib.sha256(file).hexdigest()
    while missing := put_json(f"/v1/model-files/{digest}", {"bytes": len(file), "parts": digests})["missing"]:
        for number in missing:
            put_bytes(f"/v1/model-file-parts/{digests[number]}", parts[number])
    return f"sha256:{digest}"


def _floats(value: Any) -> np.ndarray | None:
    """The array in 32 bits; nothing if it holds no floating-point numbers."""
    import numpy as np

    if hasattr(value, "detach"):  # PyTorch; its bfloat16 is unknown to NumPy.
        value = value.detach()
        value = (value.float() if value.is_floating_point() else value).cpu().numpy()
    array = np.asarray(value)
    is_float = np.issubdtype(array.dtype, np.floating) or array.dtype.name == "bfloat16"
    return array.astype("<f4") if is_float else None


def written(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays of float32 as a safetensors file, in their order. Equal arrays give the bytes that the SDK in Rust writes."""
    about, start = {}, 0
    for name, array in arrays.items():
        about[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [start, start + array.nbytes]}
        start += array.nbytes
    header = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([len(header).to_bytes(8, "little"), header, *(array.tobytes() for array in arrays.values())])
