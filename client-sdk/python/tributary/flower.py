"""Flower clients take part as they are: a ``ClientApp``, a ``NumPyClient`` or a ``Client`` of the package ``flwr`` (1.22 or newer)::

    import tributary.flower
    from quickstart.client_app import app

    tributary.flower.run(app, task="digits", journal="site-1", node_config={"partition-id": 1, "num-partitions": 10})

``python -m tributary.flower DIR --task digits --journal site-1`` runs the app that ``DIR/pyproject.toml`` names.

In each round the client evaluates the received model, if the task collects such metrics, and then trains it. Its configuration comes from
the task's plan (:func:`run`). Its ``Context`` is kept until the process ends. Its update leaves the device clipped and masked.
"""

from __future__ import annotations

import hashlib
import importlib
import pathlib
import re
import shlex
import sys
import time
import traceback
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import bridge
from ._tributary import ClosedError, ConfigurationError, UpdateError
from .participant import participant
from .task import Task

if TYPE_CHECKING:
    import numpy as np
    from flwr.app import ArrayRecord, Context, RecordDict
    from flwr.client import Client, NumPyClient
    from flwr.clientapp import ClientApp

    App = Union[ClientApp, Client, NumPyClient]
    Scalar = Union[bool, int, float, str]

#: Flower's codes of a reply by a ``Client``: success, and a method that the client does not have.
_OK, _NOT_IMPLEMENTED = 0, (3, 4)
#: Seconds for the reply to a message, as Flower has it; the round's own deadline applies.
_LIFETIME = 43_200.0
#: The node that messages come from, as Flower numbers it.
_SERVER = 1


def run(
    app: App,
    *,
    node_config: Mapping[str, Scalar] | None = None,
    run_config: Mapping[str, Scalar] | None = None,
    arrays_key: str = "arrays",
    config_key: str = "config",
    weighted_by: str = "num-examples",
    **options: Any,
) -> None:
    """Takes part in a task with a Flower client until the task is over.

    The task's plan is in the messages' ``ConfigRecord`` (``config`` of ``fit`` and ``evaluate``) and in ``context.run_config``, each setting
    by its name in the task file with underscores and with hyphens: ``learning_rate``, ``learning-rate`` and ``lr``, ``batch-size``,
    ``local-epochs``, ``proximal-mu``. Messages also have ``server-round``. The plan overrides ``run_config``. Settings that the client
    does not read have no effect.

    A client that raises gives up its place in the round; the traceback goes to standard error, and the next round begins as usual.

    :param node_config: ``context.node_config``, such as ``partition-id``.
    :param run_config: further settings of ``context.run_config``, as in ``[tool.flwr.app.config]``.
    :param arrays_key: name of the message's ``ArrayRecord``, as in Flower's strategies; also ``config_key`` and, for the metric that weighs
        the update, ``weighted_by``.
    :param options: those of :func:`tributary.participant`.
    :raises ConfigurationError: if ``app`` is no Flower client.
    """
    client = _app_of(app)
    with participant(**options) as me:
        node: Node | None = None
        for task in me.tasks():
            node = node or Node(
                client,
                name=me.id or "",
                node_config=node_config,
                run_config=run_config,
                arrays_key=arrays_key,
                config_key=config_key,
                weighted_by=weighted_by,
            )
            node.answer(task)


class _MissingError(Exception):
    """The client does not have the method that a message asks for."""


class Reply(NamedTuple):
    """The content of a client's reply."""

    #: The trained model; ``None`` after an evaluation.
    arrays: ArrayRecord | None
    examples: int
    metrics: dict[str, float]


class Node:
    """Answers tasks with a Flower client; for a program with its own loop over :meth:`tributary.Participant.tasks`."""

    def __init__(
        self,
        app: App,
        *,
        name: str,
        node_config: Mapping[str, Scalar] | None = None,
        run_config: Mapping[str, Scalar] | None = None,
        arrays_key: str = "arrays",
        config_key: str = "config",
        weighted_by: str = "num-examples",
    ) -> None:
        """``name`` determines ``context.node_id``; the other parameters are those of :func:`run`."""
        self._app = _app_of(app)
        #: Whether the client has `fit` and `evaluate`, whose messages have other names than those of functions.
        self._has_methods = getattr(self._app, "_call", None) is not None
        self._evaluates = self._has_methods or "evaluate.default" in getattr(self._app, "_registered_funcs", ["evaluate.default"])
        self._id = _number(name)
        self._node_config, self._run_config = dict(node_config or {}), dict(run_config or {})
        self._keys, self._weighted_by = (arrays_key, config_key), weighted_by
        self._contexts: dict[str, Context] = {}
        self._counters: dict[str, bridge.Counters] = {}

    def answer(self, task: Task) -> bool:
        """Answers a task; returns whether its update was handed in."""
        try:
            arrays, examples, metrics = self._round(task)
            return task.send(arrays, examples=examples, metrics=metrics)
        except ClosedError:
            raise
        except _MissingError as error:
            task.refuse(error)
        except Exception as error:
            traceback.print_exc()
            task.fail(error)
        return False

    def _round(self, task: Task) -> tuple[dict[str, np.ndarray], int, dict[str, tuple[float, int]]]:
        """The trained model, its examples, and metrics with the number of examples of each."""
        counters = self._counters.setdefault(task.name, bridge.Counters())
        received = counters.added(task.parameters)
        is_own = task.purpose == "own"
        measured = None if is_own else self._measure(task, received, "")
        trained = self._ask("train", task, received)
        if trained.arrays is None:
            raise UpdateError("the client's reply to `train` has no ArrayRecord; it must have one, the trained model")
        whole = _named(trained.arrays, list(received))
        if is_own:
            measured = self._measure(task, whole, "personal_")
        metrics = {re.sub("^(train[-_./])?", "train_", name): (value, trained.examples) for name, value in trained.metrics.items()}
        metrics.update(measured or {})
        if not is_own:
            bridge.warn_of_missing(task, metrics)
        return counters.removed(whole), trained.examples, metrics

    def _measure(self, task: Task, arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, tuple[float, int]]:
        """Metrics of a model, if the task collects such."""
        wanted = [name for name in task.metrics if name.startswith("personal_") == bool(prefix) and not name.startswith("train_")]
        if not wanted or not self._evaluates:
            return {}
        try:
            found = self._ask("evaluate", task, arrays)
        except _MissingError:
            return {}
        return {prefix + name: (value, found.examples) for name, value in found.metrics.items()}

    def _ask(self, kind: str, task: Task, arrays: Mapping[str, np.ndarray]) -> Reply:
        """The client's reply to a message.

        :raises _MissingError: if the client has no such method.
        """
        from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, RecordDict

        plan = _in_both_spellings({**bridge.plan_values(task.plan), "server_round": task.round})
        method = {"train": "fit", "evaluate": "evaluate"}[kind]
        keys = (f"{method}ins.parameters", f"{method}ins.config") if self._has_methods else self._keys
        records: dict[str, Any] = {keys[0]: ArrayRecord({name: Array(value) for name, value in arrays.items()}), keys[1]: ConfigRecord({**plan})}
        metadata = Metadata(
            run_id=_number(task.name),
            message_id=uuid.uuid4().hex,
            src_node_id=_SERVER,
            dst_node_id=self._id,
            reply_to_message_id="",
            group_id=str(task.round),
            created_at=time.time(),
            ttl=_LIFETIME,
            message_type=kind,
        )
        message: Any = Message
        reply = self._app(message(metadata=metadata, content=RecordDict(records)), self._context(task, plan))
        if reply.has_error():
            raise RuntimeError(f"the client's reply to `{kind}` is an error: {reply.error.reason}")
        return _of_method(method, reply.content) if self._has_methods else self._of_function(kind, reply.content)

    def _context(self, task: Task, plan: Mapping[str, Scalar]) -> Context:
        """The client's context of a task, with this round's plan."""
        from flwr.app import Context, RecordDict

        if task.name not in self._contexts:
            self._contexts[task.name] = Context(_number(task.name), self._id, dict(self._node_config), RecordDict(), {})
        context = self._contexts[task.name]
        context.run_config = {**self._run_config, **plan}
        return context

    def _of_function(self, kind: str, content: RecordDict) -> Reply:
        """The reply of a function that is registered with a ``ClientApp``."""
        if len(content.array_records) > 1:
            raise UpdateError(f"the client's reply to `{kind}` has {len(content.array_records)} ArrayRecords; it must have one, the trained model")
        metrics = _numbers({name: value for record in content.metric_records.values() for name, value in record.items()})
        examples = metrics.pop(self._weighted_by, None)
        if examples is None:
            raise UpdateError(f"the client's reply to `{kind}` has no metric {self._weighted_by!r}; it must have one, which weighs the update")
        return Reply(next(iter(content.array_records.values()), None), int(examples), metrics)


def _of_method(method: str, content: RecordDict) -> Reply:
    """The reply of ``fit`` or ``evaluate``.

    :raises _MissingError: if the client does not have the method.
    """
    prefix = f"{method}res"
    status = content.config_records[f"{prefix}.status"]
    if status["code"] in _NOT_IMPLEMENTED:
        raise _MissingError(str(status["message"]))
    if status["code"] != _OK:
        raise RuntimeError(f"`{method}` of the client failed: {status['message']!r}")
    metrics = _numbers(content.config_records[f"{prefix}.metrics"])
    if method == "evaluate":
        metrics = {"loss": float(content.metric_records[f"{prefix}.loss"]["loss"]), **metrics}  # type: ignore[arg-type]
    examples = content.metric_records[f"{prefix}.num_examples"]["num_examples"]
    return Reply(content.array_records.get(f"{prefix}.parameters"), int(examples), metrics)  # type: ignore[arg-type]


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are one number."""
    return {name: value for name, value in record.items() if isinstance(value, (int, float))}


def _named(record: ArrayRecord, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays by the task's names. Flower numbers those of a list."""
    arrays = {name: array.numpy() for name, array in record.items()}
    is_list = set(arrays) != set(names) and list(arrays) == [str(index) for index in range(len(names))]
    return dict(zip(names, arrays.values())) if is_list else arrays


def _in_both_spellings(settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {spelling: value for name, value in settings.items() for spelling in (name, name.replace("_", "-"))}


def _number(name: str) -> int:
    """A positive number of 63 bits for a name, the same in every process."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def _app_of(app: App) -> ClientApp:
    """A client as a ``ClientApp``.

    :raises ConfigurationError: if it is none, or ``flwr`` is not installed.
    """
    try:
        from flwr.client import Client, NumPyClient
        from flwr.clientapp import ClientApp
    except ImportError as error:
        raise ConfigurationError(f"tributary.flower needs the package flwr, 1.22 or newer: {error}") from error
    if isinstance(app, ClientApp):
        return app
    if isinstance(app, (Client, NumPyClient)):
        client = app.to_client()
        return ClientApp(client_fn=lambda context: client)
    raise ConfigurationError(f"{app!r} is no Flower client; it must be a ClientApp, Client or NumPyClient")


def _load(folder: pathlib.Path) -> tuple[Any, dict[str, Scalar]]:
    """The client and the configuration of a Flower app's folder.

    :raises ConfigurationError: if the folder names no client, or Python is older than 3.11, which has no reader of TOML.
    """
    try:
        import tomllib
    except ImportError as error:
        raise ConfigurationError("reading pyproject.toml needs Python 3.11 or newer; call tributary.flower.run with the client") from error
    file = folder / "pyproject.toml"
    try:
        about = tomllib.loads(file.read_text())["tool"]["flwr"]["app"]
        module, _, name = about["components"]["clientapp"].partition(":")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigurationError(f"{file} must name a client in `tool.flwr.app.components.clientapp`: {error!r}") from error
    sys.path.insert(0, str(folder))
    return getattr(importlib.import_module(module), name), _flat(about.get("config", {}))


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Scalar]:
    """A table within others as one, with names joined by dots, as Flower has it."""
    found: dict[str, Scalar] = {}
    for name, value in table.items():
        found.update(_flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value})
    return found


def main(args: Sequence[str] | None = None) -> None:
    """The command line, ``python -m tributary.flower``."""
    parser = bridge.arguments("python -m tributary.flower", "Takes part in a Tributary task with a Flower app.")
    parser.add_argument("app", type=pathlib.Path, help="the app's folder, with its pyproject.toml")
    parser.add_argument("--node-config", default="", metavar="'NAME=VALUE …'", help="context.node_config, as of flower-supernode")
    parser.add_argument("--run-config", default="", metavar="'NAME=VALUE …'", help="overrides [tool.flwr.app.config], as of flwr run")
    parsed = parser.parse_args(args)
    app, config = _load(parsed.app.resolve())
    config.update(bridge.pairs(shlex.split(parsed.run_config)))
    run(app, node_config=bridge.pairs(shlex.split(parsed.node_config)), run_config=config, **bridge.options(parsed))


if __name__ == "__main__":
    main()
