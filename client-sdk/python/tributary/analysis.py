"""What a task that is an analysis asks for, and rows as it takes them."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _tributary
from .update import numbers

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of the rows, or ``repeat`` columns of the same kind one after the other."""

    name: str
    #: ``real``: numbers, those beyond the range counting as its nearest end. ``category``: whole numbers from 0. ``time``: time to an
    #: event or to the end of the observation. ``exposure``: what a count is proportional to.
    type: str = "real"
    #: The range of a number.
    low: float | None = None
    high: float | None = None
    #: How many categories there are; other numbers count as in none.
    categories: int | None = None
    #: Number of consecutive columns that this describes.
    repeat: int = 1
    #: Of ``statistics``: edges of a histogram, and the quantiles that are computed.
    edges: Sequence[float] = ()
    quantiles: Sequence[float] = ()
    #: Everything else that the task says, by its name in the task file.
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Target:
    """What is predicted of each row."""

    #: ``class``: whole numbers from 0, below ``classes``. ``binary``: 0 or 1. ``count``: from 0. ``real``: numbers, those beyond the range
    #: counting as its nearest end.
    type: str
    classes: int | None = None
    #: The range of a number.
    low: float | None = None
    high: float | None = None
    #: Everything else that the task says, by its name in the task file.
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Analysis:
    """What a task asks of rows that stay on the device. What leaves it is what the analysis counts and sums of them."""

    #: ``statistics``, ``k_means``, ``trees``, ``regression``, ``survival``, ``cox``, ``contingency`` or ``evaluation``.
    kind: str
    #: So many rows of a participant count at most; of more, evenly spaced ones.
    max_rows: int
    #: In the order in which rows have them. None of an ``evaluation``: its rows are predictions of the model, a probability for each class
    #: or one number.
    columns: Sequence[Column]
    #: What ``trees`` or an evaluated model predict and a ``regression`` explains. For ``survival`` and ``cox`` targets are 1 for an event, else 0.
    target: Target | None = None
    #: Everything else that the task says, by its name in the task file.
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def _read(cls, text: str) -> Analysis:
        said = json.loads(text)
        said["columns"] = [_made(Column, column) for column in said.get("columns", [])]
        if "target" in said:
            said["target"] = _made(Target, said["target"])
        return _made(cls, said)


def _made(of: type[Any], said: Mapping[str, Any]) -> Any:
    """A dataclass of what the task says, with what it does not know in ``more``."""
    own = {field.name for field in dataclasses.fields(of)} - {"more"}
    known = {name: value for name, value in said.items() if name in own}
    return of(**known, more={name: value for name, value in said.items() if name not in own})


def table_of(analysis: Analysis, rows: Any, targets: Any) -> tuple[np.ndarray, int, np.ndarray | None]:
    """Rows of numbers, flat and in 64 bits, the length of a row, and what is to be predicted of each, if that was given.

    :raises UpdateError: if they are no such things.
    """
    import numpy as np

    # A data frame has its columns in an order of its own.
    is_named = isinstance(rows, Mapping) or hasattr(rows, "columns")
    given = _in_order(analysis, rows) if is_named else numbers("rows are", _in_full(rows), 1)
    if given.ndim > 2:
        raise _tributary.UpdateError(f"rows are an array of the shape {given.shape}; they must be rows of numbers")
    width = given.shape[1] if given.ndim == 2 else 1
    flat = np.ascontiguousarray(given, dtype=np.float64).reshape(-1)
    if targets is None:
        return flat, width, None
    of_each = numbers("targets are", _in_full(targets), 1)
    if of_each.ndim != 1:
        raise _tributary.UpdateError(f"targets are an array of the shape {of_each.shape}; they must be numbers, one a row")
    return flat, width, np.ascontiguousarray(of_each, dtype=np.float64)


def _in_order(analysis: Analysis, rows: Any) -> np.ndarray:
    """Columns that were given by name, in the analysis' order; others are not looked at."""
    import numpy as np

    if not analysis.columns:
        raise _tributary.UpdateError("an evaluation takes predictions as one array, without names of columns")
    names = [column.name for column in analysis.columns]
    asked = f"the analysis asks for {', '.join(map(repr, names))}"
    known = rows if isinstance(rows, Mapping) else rows.columns
    missing = [repr(name) for name in names if name not in known]
    if missing:
        raise _tributary.UpdateError(f"the rows come without {', '.join(missing)}; {asked}")
    if len(set(names)) < len(names):
        raise _tributary.UpdateError(f"{asked}, one of them twice: give the rows as one array, in this order")
    parts: list[np.ndarray] = []
    for name, column in zip(names, analysis.columns):
        part = numbers(f"the values of {name!r} are", _in_full(rows[name]), 1)
        part = part[:, None] if part.ndim == 1 else part
        if part.ndim > 2 or part.shape[1] != column.repeat:
            raise _tributary.UpdateError(f"the values of {name!r} have the shape {part.shape}; a row has {column.repeat} of them")
        if parts and len(part) != len(parts[0]):
            raise _tributary.UpdateError(f"there are {len(parts[0])} values of {names[0]!r} and {len(part)} of {name!r}")
        parts.append(part)
    return np.concatenate(parts, axis=1)


def _in_full(given: Any) -> Any:
    """A tensor of PyTorch in 64 bits as NumPy has it, since a model needs only 32 of them; others as they are."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(given, torch.Tensor) or given.dtype != torch.float64:
        return given
    return given.numpy(force=True)
