"""Task files, and the files that they name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ._tributary import ConfigurationError


def task_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a task file in TOML or JSON.

    :raises ConfigurationError: if it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            said = file.read()
        if os.fspath(path).endswith(".json"):
            return dict(json.loads(said))
        try:
            import tomllib
        except ImportError:  # Python 3.10
            raise ConfigurationError("task files in TOML need Python 3.11; convert it to JSON, or give a mapping") from None
        return tomllib.loads(said.decode())
    except (OSError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{path} is no task file: {error}") from error


def with_settings(given: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A task with settings on top, each by the dotted path of its key."""
    whole = dict(given)
    for path, value in settings.items():
        *sections, last = path.split(".")
        table = whole
        for section in sections:
            inner = table.get(section)
            table[section] = dict(inner) if isinstance(inner, Mapping) else {}
            table = table[section]
        table[last] = value
    return whole


def beside(given: Mapping[str, Any], spec: Any) -> str | None:
    """The path of the model file that a task names; beside the task file if it is there."""
    about = given.get("model")
    named = about.get("initial") if isinstance(about, Mapping) else None
    if not isinstance(named, str) or named.startswith("sha256:"):
        return None
    return _path(named, spec)


def _path(named: str, spec: Any) -> str:
    """The path of a file that a task names; beside the task file if it is there."""
    folder = "" if isinstance(spec, Mapping) else os.path.dirname(os.fspath(spec))
    beside = os.path.join(folder, named)
    return beside if os.path.exists(beside) else named


def with_graph(given: dict[str, Any], spec: Any) -> dict[str, Any]:
    """The task with the file of ``model.graph`` and ``model.loss`` as its architecture.

    :raises ConfigurationError: if the file cannot be read.
    """
    about = given.get("model")
    named = about.get("graph") if isinstance(about, Mapping) else None
    if not isinstance(about, Mapping) or not isinstance(named, str):
        return given
    path = _path(named, spec)
    try:
        with open(path, encoding="utf-8") as file:
            graph = json.load(file)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"model.graph: {path} cannot be read: {error}") from error
    rest = {name: value for name, value in about.items() if name not in ("graph", "loss")}
    architecture = {"kind": "graph", "graph": graph, "loss": about.get("loss") or {"kind": "cross_entropy"}}
    return {**given, "model": {**rest, "architecture": architecture}}
