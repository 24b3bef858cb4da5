"""Parts that the adapters for clients of other frameworks share (:mod:`tributary.flower`, :mod:`tributary.nvflare`)."""

from __future__ import annotations

import argparse
import dataclasses
import json
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .program import _on_host

if TYPE_CHECKING:
    import numpy as np

    from .task import Plan, Task

#: The last floating-point tensor of a batch normalization in PyTorch, and the counter that follows it in a ``state_dict``.
_VARIANCE, _COUNTER = "running_var", "num_batches_tracked"


class Counters:
    """Integer counters of batch normalizations. A task has floating-point tensors only, and a client expects its whole ``state_dict``.

    The counters stay on this device and keep the value that the client returned last.
    """

    def __init__(self) -> None:
        self._kept: dict[str, np.ndarray] = {}

    def added(self, parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The parameters in the order of a ``state_dict``, with a counter after each running variance."""
        import numpy as np

        whole: dict[str, np.ndarray] = {}
        for name, value in parameters.items():
            whole[name] = value
            layer, _, last = name.rpartition(".")
            counter = f"{layer}.{_COUNTER}" if layer else _COUNTER
            if last == _VARIANCE and counter not in parameters:
                whole[counter] = self._kept.setdefault(counter, np.array(0, dtype=np.int64))
        return whole

    def removed(self, returned: Mapping[str, Any]) -> dict[str, Any]:
        """Keeps the counters of a trained model; returns its other arrays."""
        self._kept.update((name, on_host(value)) for name, value in returned.items() if name in self._kept)
        return {name: value for name, value in returned.items() if name not in self._kept}


def on_host(value: Any) -> np.ndarray:
    """An array of NumPy, also of a tensor of PyTorch on another device."""
    import numpy as np

    return np.asarray(_on_host(value))


def plan_values(plan: Plan) -> dict[str, bool | int | float | str]:
    """The plan's settings by name, without those that it leaves open. Clients of other frameworks know two of them by shorter names."""
    given = {
        **plan.more,
        **{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)},
        **dataclasses.asdict(plan.optimizer),
        "optimizer": plan.optimizer.name,
        "local_epochs": plan.epochs,
        "lr": plan.learning_rate,
    }
    del given["name"]
    return {name: value for name, value in given.items() if isinstance(value, (bool, int, float, str))}


def warn_of_missing(task: Task, reported: Iterable[str]) -> None:
    """Warns about metrics of the task that the client does not report; Python prints an equal warning once."""
    names = set(reported)
    wanted = (name for name in task.metrics if name not in names and not name.startswith("personal_"))
    missing = sorted({name.split(".")[0] for name in wanted} - names)
    if missing:
        warnings.warn(
            f"task {task.name!r} collects {', '.join(missing)}; the client reports {', '.join(sorted(names)) or 'no metric'}. "
            "Name the client's metrics in the task's `metrics`.",
            stacklevel=3,
        )


def arguments(prog: str, description: str) -> argparse.ArgumentParser:
    """A parser with the settings of :func:`tributary.participant`; :func:`options` reads them."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--task", required=True, help="the task to take part in")
    parser.add_argument("--journal", required=True, help="the folder of the participant's state")
    parser.add_argument("--server", help="https://HOST:PORT of the coordinator; default: TRIBUTARY_SERVER")
    parser.add_argument("--ca", help="the file of its certificate authority; default: TRIBUTARY_CA")
    parser.add_argument("--name", help="the participant's name, unless its token has one")
    parser.add_argument("--min-cohort", type=int, help="smallest cohort to take part in (default: 10)")
    parser.add_argument("--min-tolerated-colluders", type=int, help="fewest colluding members that the masks must withstand")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="any other setting of tributary.participant, as JSON")
    parser.epilog = "The enrolment token is in TRIBUTARY_ENROLLMENT_TOKEN."
    return parser


def options(parsed: argparse.Namespace) -> dict[str, Any]:
    """The arguments of :func:`tributary.participant` from a command line."""
    floors = {name: getattr(parsed, name) for name in ("min_cohort", "min_tolerated_colluders")}
    floors = {name: value for name, value in floors.items() if value is not None}
    given: dict[str, Any] = {name: getattr(parsed, name) for name in ("task", "journal", "server", "ca", "name")}
    more = pairs(parsed.option)
    if floors:
        more["secure_aggregation"] = {**(more.get("secure_aggregation") or {}), **floors}
    return {**given, **more}


def pairs(texts: Iterable[str]) -> dict[str, Any]:
    """Settings in the form ``NAME=VALUE``; a value that is no JSON is text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SystemExit(f"{text!r} must be NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
