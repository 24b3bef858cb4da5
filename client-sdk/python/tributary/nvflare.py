"""NVFlare's Client API over a Tributary task.

``python -m tributary.nvflare --task digits --journal site-1 client.py`` runs an unchanged script that imports ``nvflare.client``, also with
its ``patch`` for PyTorch Lightning and for Hugging Face. A script can also leave NVFlare behind::

    import tributary.nvflare as flare

    flare.init(task="digits", journal="site-1")
    while flare.is_running():
        received = flare.receive()
        metrics = evaluate(received.params)
        flare.send(flare.FLModel(params=train(received.params), metrics=metrics, meta={"NUM_STEPS_CURRENT_ROUND": steps}))

The update leaves the device clipped and masked. Its weight is ``NUM_STEPS_CURRENT_ROUND``. Metrics are those of the received model.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import bridge
from ._tributary import ConfigurationError
from .nvflare_session import FLModel, ParamsType, Session
from .participant import participant

__all__ = [
    "FLModel",
    "ParamsType",
    "Session",
    "clear",
    "get_config",
    "get_job_id",
    "get_site_name",
    "get_task_name",
    "init",
    "is_evaluate",
    "is_running",
    "is_submit_model",
    "is_train",
    "log",
    "receive",
    "run",
    "send",
    "shutdown",
    "system_info",
]

_session: Session | None = None


def init(
    rank: str | int | None = None,
    config_file: str | None = None,
    *,
    task: str | None = None,
    name: str | None = None,
    evaluates: bool = False,
    tensors: str | None = None,
    model_type: Callable[..., Any] = FLModel,
    **options: Any,
) -> Session:
    """Starts taking part in ``task``; a repeated call returns the first session.

    :param rank: 0; one process takes part. For several, see ``tributary.job``.
    :param config_file: not used; it exists for scripts of NVFlare.
    :param evaluates: gives each model twice, first to evaluate it (:func:`is_evaluate`), then to train it. For scripts that evaluate only
        when NVFlare asks for it.
    :param tensors: ``numpy`` or ``pytorch``, the kind of ``params``; by default PyTorch's if the script imported it.
    :param model_type: the class of received models.
    :param options: those of :func:`tributary.participant`.
    :raises ConfigurationError: if there is no ``task``, or this process is not the only one.
    """
    global _session
    if _session is not None:
        return _session
    if str(os.environ.get("RANK", "0") if rank is None else rank) != "0":
        raise ConfigurationError("tributary.nvflare takes part from one process; several train together with tributary.job()")
    if task is None:
        raise ConfigurationError("flare.init needs task=… and journal=…; an unchanged script runs by `python -m tributary.nvflare`")
    if tensors not in (None, "numpy", "pytorch"):
        raise ConfigurationError(f"tensors is {tensors!r}; it must be 'numpy' or 'pytorch'")
    me = participant(task=task, name=name, **options)
    _session = Session(me, task=task, name=name, evaluates=evaluates, tensors=tensors, model_type=model_type)
    return _session


def _current() -> Session:
    if _session is None:
        raise RuntimeError("call `init` first")
    return _session


def receive(timeout: float | None = None) -> Any:
    """:meth:`Session.receive`."""
    return _current().receive(timeout)


def send(model: Any, clear_cache: bool = True) -> None:
    """:meth:`Session.send`."""
    _current().send(model, clear_cache)


def is_running() -> bool:
    """:meth:`Session.is_running`."""
    return _current().is_running()


def is_train() -> bool:
    """:meth:`Session.is_train`."""
    return _current().is_train()


def is_evaluate() -> bool:
    """:meth:`Session.is_evaluate`."""
    return _current().is_evaluate()


def is_submit_model() -> bool:
    """:meth:`Session.is_submit_model`."""
    return _current().is_submit_model()


def system_info() -> dict[str, str]:
    """:meth:`Session.system_info`."""
    return _current().system_info()


def get_config() -> dict[str, Any]:
    """:meth:`Session.get_config`."""
    return _current().get_config()


def get_job_id() -> str:
    """:meth:`Session.get_job_id`."""
    return _current().get_job_id()


def get_site_name() -> str:
    """:meth:`Session.get_site_name`."""
    return _current().get_site_name()


def get_task_name() -> str:
    """:meth:`Session.get_task_name`."""
    return _current().get_task_name()


def log(key: str, value: Any, data_type: Any = None, **more: Any) -> bool:
    """:meth:`Session.log`."""
    return _current().log(key, value, data_type, **more)


def clear() -> None:
    """:meth:`Session.clear`."""
    _current().clear()


def shutdown() -> None:
    """:meth:`Session.shutdown`; :func:`init` may then start another session."""
    global _session
    if _session is not None:
        _session.shutdown()
    _session = None


def run(script: str, *args: str, **options: Any) -> None:
    """Runs an unchanged script of NVFlare's Client API as the main program, and takes part with it.

    :param args: the script's arguments.
    :param options: those of :func:`init`.
    :raises ConfigurationError: if NVFlare is not installed.
    """
    if importlib.util.find_spec("nvflare") is None:
        raise ConfigurationError("an unchanged script needs `pip install nvflare`; or import tributary.nvflare in place of nvflare.client")
    from nvflare.app_common.abstract.fl_model import FLModel as NvflareModel

    _give_to_nvflare(init(model_type=NvflareModel, **options))
    before = sys.argv, sys.path[:]
    sys.argv, sys.path[:] = [script, *args], [os.path.dirname(os.path.abspath(script)), *sys.path]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before
        shutdown()


def _give_to_nvflare(session: Session) -> None:
    """Makes a session the one of ``nvflare.client`` in this process, in the place of NVFlare's in-process executor."""
    from nvflare.client import api as client_api
    from nvflare.client.api_spec import CLIENT_API_KEY
    from nvflare.client.in_process.api import InProcessClientAPI
    from nvflare.fuel.data_event.data_bus import DataBus

    class Api(InProcessClientAPI):  # type: ignore[misc] # Untyped. It must be of this class.
        def __init__(self) -> None:
            """Leaves out what NVFlare's client process would send."""

        def init(self, rank: str | None = None, config: Any = None) -> None:
            """The session has begun."""

    for name, member in vars(Session).items():
        if not name.startswith("_") and callable(member):
            setattr(Api, name, staticmethod(getattr(session, name)))
    # NVFlare keeps the session of an earlier script of this process.
    client_api.context_dict.clear()
    DataBus().put_data(CLIENT_API_KEY, Api())


def main(args: Sequence[str] | None = None) -> None:
    """The command line, ``python -m tributary.nvflare``."""
    parser = bridge.arguments("python -m tributary.nvflare", "Takes part in a Tributary task with a script of NVFlare's Client API.")
    parser.add_argument("--evaluates", action="store_true", help="give each model twice: to evaluate it, then to train it")
    parser.add_argument("--tensors", choices=("numpy", "pytorch"), help="the kind of received parameters")
    parser.add_argument("script", help="the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's arguments")
    parsed = parser.parse_args(args)
    run(parsed.script, *parsed.arguments, evaluates=parsed.evaluates, tensors=parsed.tensors, **bridge.options(parsed))


if __name__ == "__main__":
    # A script that imports this module gets the session that runs it.
    importlib.import_module("tributary.nvflare").main()
