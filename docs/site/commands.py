#!/usr/bin/env python3
"""Runs the commands of docs/site/commands.toml, which pages tell and no tutorial runs, in one bash and an empty folder: commands.py.

`tributary` is on the PATH; TRIBUTARY is the repository. Each must succeed.
"""
import pathlib
import shlex
import sys
import time
import tomllib

import tutorials


def script(told):
    """The commands as one script, which says each before it runs it."""
    parts = ["set -euo pipefail", told["setup"]]
    for command in told["command"]:
        if "in" in command or "why" in command:
            continue
        typed = command.get("run", command["says"])
        parts += [f"printf '%s\\n' {shlex.quote('$ ' + typed)}", typed]
    return "\n".join(parts)


def main():
    told = tomllib.loads((pathlib.Path(__file__).parent / "commands.toml").read_text())
    started = time.monotonic()
    status, output = tutorials.run(script(told))
    if status != 0:
        sys.exit(f"{output}\ndocs/site/commands.toml: {status}")
    count = output.count("\n$ tributary ") + output.count("\n$ timeout ")
    print(f"{count} commands of other pages ran, in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
