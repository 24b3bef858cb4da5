"""Settings as the native part takes them. One that cannot be used is told by its name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ._tributary import ConfigurationError

_Made = TypeVar("_Made")


def made(name: str, given: Any, make: Callable[[Any], _Made]) -> _Made:
    """What is made of a setting.

    :raises ConfigurationError: if nothing can be. It does not show the setting, which may be secret.
    """
    try:
        return make(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"{name} cannot be used: {error}") from error


def path(name: str, given: Any) -> str:
    """A folder or a file."""
    return made(name, given, lambda given: os.fsdecode(os.fspath(given)))


def milliseconds(name: str, seconds: Any) -> int:
    """A time that is given in seconds."""
    return made(name, seconds, lambda seconds: int(seconds * 1000))


def as_json(settings: Mapping[str, Any]) -> str:
    """All of them in one text."""
    return "{" + ", ".join(f"{json.dumps(name)}: {made(name, given, json.dumps)}" for name, given in settings.items()) + "}"


def pem(name: str, given: str | os.PathLike[str] | None) -> str | None:
    """A certificate, given as such or as a file."""
    if given is None or (isinstance(given, str) and "-----BEGIN" in given):
        return given
    file = path(name, given)
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"no certificate can be read from {file}: {error}") from error
