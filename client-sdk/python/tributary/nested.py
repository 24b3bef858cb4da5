"""Models whose arrays are nested, as JAX and Flax have them: dictionaries, lists and tuples within one another.

An array's name is the keys that lead to it, joined by dots or by slashes: ``{"Dense_0": {"kernel": …}}`` has ``Dense_0.kernel`` or
``Dense_0/kernel``, whichever the task names. Elements of lists and tuples count from 0; those of a named tuple have its names.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._tributary import UpdateError

if TYPE_CHECKING:
    import numpy as np

_JOINTS = (".", "/")


def named(given: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    """What is nested, by name.

    :raises UpdateError: if two have the same name.
    """
    found: dict[str, Any] = {}
    for name, value in _leaves((), given, own):
        if name in found:
            raise UpdateError(f"the update has {name!r} twice")
        found[name] = value
    return found


def like(tree: Any, own: Mapping[str, np.ndarray]) -> Any:
    """The model's arrays, nested as ``tree`` is, each of the kind and the precision of the one in its place.

    :raises UpdateError: if the tree has not the model's names and shapes.
    """
    missing = sorted(set(own) - {name for name, _ in _leaves((), tree, own)})
    if missing:
        raise UpdateError(f"the model's {', '.join(map(repr, missing))} have no place in what is given")
    return _like((), tree, own)


def is_nested(given: Sequence[Any], count: int) -> bool:
    """Whether a sequence has others within it, and is not one of so many arrays."""
    has_mappings = any(isinstance(part, Mapping) for part in given)
    return has_mappings or (len(given) != count and any(isinstance(part, (list, tuple)) for part in given))


def _name(path: tuple[str, ...], own: Mapping[str, Any]) -> str:
    """The model's name for a place; one that it does not have if it has none."""
    names = [joint.join(path) for joint in _JOINTS]
    return next((name for name in names if name in own), names[0])


def _inner(path: tuple[str, ...], value: Any, own: Mapping[str, Any]) -> list[tuple[str, Any]] | None:
    """What is within a place, by key; nothing if it holds an array, as nested lists of numbers are."""
    if path and _name(path, own) in own:
        return None
    if isinstance(value, Mapping):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        within = tuple(joint.join(path) + joint for joint in _JOINTS)
        if not path or any(name.startswith(within) for name in own):
            return [(str(key), part) for key, part in zip(getattr(value, "_fields", range(len(value))), value)]
    return None


def _leaves(path: tuple[str, ...], value: Any, own: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    inner = _inner(path, value, own)
    if inner is not None:
        for key, part in inner:
            yield from _leaves((*path, key), part, own)
    elif value is not None or _name(path, own) in own:  # JAX has None where there is nothing.
        yield _name(path, own), value


def _like(path: tuple[str, ...], tree: Any, own: Mapping[str, np.ndarray]) -> Any:
    inner = _inner(path, tree, own)
    if inner is not None:
        return _made_of(tree, [_like((*path, key), part, own) for key, part in inner])
    name = _name(path, own)
    if name in own:
        return _array(name, own[name], tree)
    if tree is None:
        return None
    raise UpdateError(f"the model has no tensor {name!r}; its tensors are {', '.join(own)}")


def _made_of(tree: Any, parts: list[Any]) -> Any:
    """A tree of the same kind, with these in the places of its parts."""
    if isinstance(tree, dict):
        made = copy.copy(tree)
        made.update(zip(tree, parts))
        return made
    if isinstance(tree, Mapping):
        return type(tree)(dict(zip(tree, parts)))  # type: ignore[call-arg] # Flax's FrozenDict is made so.
    return tree._make(parts) if hasattr(tree, "_make") else type(tree)(parts)


def _array(name: str, value: np.ndarray, place: Any) -> Any:
    """An array for the place of another: of JAX if that is, otherwise of NumPy."""
    shape, dtype = getattr(place, "shape", value.shape), getattr(place, "dtype", None)
    if tuple(shape) != value.shape:
        raise UpdateError(f"tensor {name!r} has the shape {value.shape}, and its place {tuple(shape)}")
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(place, jax.Array):
        # A copy: JAX may keep what it is given, and the task trains its own in place.
        return jax.numpy.array(value, dtype=dtype)
    return value.astype(dtype) if getattr(dtype, "kind", None) == "f" and dtype != value.dtype else value
