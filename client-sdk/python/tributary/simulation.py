"""The simulator of the ``tributary`` program, from Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

from ._tributary import ConfigurationError, Error


def simulate(*, binary: str | os.PathLike[str] | None = None, **options: Any) -> dict[str, Any]:
    """Runs ``tributary simulate``, and returns its result: ``rounds``, ``curve``, ``model_sha256`` and what else the command prints as
    ``data``.

    Options are those of the command, with underscores: ``simulate(population=200, rounds=10, mode="buffered")``; ``True``
    stands for a switch. The program must be installed; ``binary`` or ``TRIBUTARY_BINARY`` says where, else ``PATH`` does.

    :raises ConfigurationError: if the program is not there.
    :raises Error: if it fails; the text is its own.
    """
    program = binary or os.environ.get("TRIBUTARY_BINARY") or shutil.which("tributary")
    if not program:
        raise ConfigurationError("there is no program `tributary`: install it, or say where it is with `binary`")
    command = [os.fspath(program), "simulate", "--format", "json"]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            command.append(flag)
        elif value is not False and value is not None:
            command.extend([flag, str(value)])
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigurationError(f"{program} cannot be run: {error}") from error
    if done.returncode != 0:
        raise Error(done.stderr.strip() or f"{program} ended with {done.returncode}")
    try:
        return json.loads(done.stdout)["data"]
    except (KeyError, TypeError, ValueError) as error:
        raise Error(f"{program} printed no result of a simulation: {error!r}") from error
