"""A participant that NVFlare's Client API drives, and NVFlare's model; :mod:`tributary.nvflare` has the functions."""

from __future__ import annotations

import dataclasses
import enum
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import bridge
from ._tributary import UpdateError
from .participant import Participant

if TYPE_CHECKING:
    from .task import Task

#: Seconds that :meth:`Session.receive` waits before it looks whether its time is over.
_SLICE = 0.2
#: The key of the update's weight in :attr:`FLModel.meta`.
_STEPS = "NUM_STEPS_CURRENT_ROUND"

_log = logging.getLogger("tributary.nvflare")


class ParamsType(str, enum.Enum):
    """Whether parameters are a model or a difference from the received one."""

    FULL = "FULL"
    DIFF = "DIFF"


@dataclasses.dataclass
class FLModel:
    """A model with metrics, as NVFlare has it."""

    params_type: ParamsType | str | None = None
    #: Arrays or tensors by name.
    params: Any = None
    optimizer_params: Any = None
    metrics: dict[str, Any] | None = None
    start_round: int | None = 0
    #: The round, from 0.
    current_round: int | None = None
    #: Unknown to a participant.
    total_rounds: int | None = None
    meta: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.params_type is not None:
            self.params_type = ParamsType(self.params_type)
        elif self.params is not None:
            self.params_type = ParamsType.FULL


class Session:
    """A participant that NVFlare's Client API drives. The functions of :mod:`tributary.nvflare` use the one that its ``init`` starts."""

    def __init__(
        self, me: Participant, *, task: str, name: str | None, evaluates: bool, tensors: str | None, model_type: Callable[..., Any]
    ) -> None:
        self._participant, self._task_name, self._name = me, task, name
        self._tasks = me.tasks()
        self._evaluates, self._tensors, self._model_type = evaluates, tensors, model_type
        self._counters = bridge.Counters()
        self._task: Task | None = None
        #: What NVFlare calls the task: ``train``, or ``validate`` for a model that is only evaluated.
        self._kind = "train"
        self._model: Any = None
        self._metrics: dict[str, Any] = {}
        self._is_over = False

    def receive(self, timeout: float | None = None) -> Any:
        """The received model, the same until it is answered; ``None`` once the task is over, or after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._model is None and not self._is_over:
            left = _SLICE if deadline is None else min(_SLICE, deadline - time.monotonic())
            self._look(max(left, 0.0))
            if left <= 0:
                break
        return self._model

    def _look(self, seconds: float) -> None:
        """Takes the next task, if one comes in this time."""
        if self._task is None:
            try:
                self._task = self._tasks._within(seconds)
            except StopIteration:
                self._is_over = True
            self._kind, self._metrics = "validate" if self._evaluates else "train", {}
        if self._task is not None:
            meta = {"fedprox_mu": self._task.plan.proximal_mu, "job_id": self._task_name, "site_name": self.get_site_name()}
            self._model = self._model_type(params=self._params(self._task), current_round=self._task.round - 1, meta=meta)

    def _params(self, task: Task) -> dict[str, Any]:
        """A copy of the task's parameters, as tensors of PyTorch if the script uses it."""
        whole = self._counters.added(task.parameters)
        if self._tensors != "pytorch" and (self._tensors is not None or "torch" not in sys.modules):
            return {name: value.copy() for name, value in whole.items()}
        import torch

        return {name: torch.tensor(value) for name, value in whole.items()}

    def send(self, model: Any, clear_cache: bool = True) -> None:
        """Hands in a trained model, or the metrics of one that :meth:`is_evaluate`.

        :raises UpdateError: if the model does not fit the task. The task still takes an answer.
        """
        task = self._task
        if task is None or self._model is None:
            raise RuntimeError("call `receive` before `send`: there is no task to answer")
        metrics = {name: value for name, value in (model.metrics or {}).items() if not isinstance(value, (str, bytes))}
        if self._kind == "validate":
            self._metrics, self._kind = metrics, "train"
        elif model.params is None:
            raise UpdateError("a training is answered by a model with `params`; pass the trained parameters")
        else:
            metrics = {**self._metrics, **metrics}
            bridge.warn_of_missing(task, metrics)
            arrays = self._counters.removed(self._full(task, model))
            # Steps weigh the update; the number of examples, which tasks may ask for, is what `init` was given.
            examples = self._participant.examples
            task.send(arrays, examples=int(model.meta.get(_STEPS, 1)), metrics=metrics)
            self._participant.examples = examples
            self._task = None
        if clear_cache:
            self.clear()

    def _full(self, task: Task, model: Any) -> Mapping[str, Any]:
        """The trained parameters."""
        if model.params_type != ParamsType.DIFF:
            return model.params
        return {name: value + bridge.on_host(model.params[name]) for name, value in task.parameters.items() if name in model.params}

    def clear(self) -> None:
        """Forgets the received model, so that the next one can come."""
        self._model = None

    def is_running(self) -> bool:
        """Whether there is a model to work on; waits for the next one."""
        return self.receive() is not None

    def is_train(self) -> bool:
        """Whether the received model is to be trained."""
        return self._kind == "train"

    def is_evaluate(self) -> bool:
        """Whether the received model is to be evaluated only; never without ``evaluates``, since an update brings its metrics."""
        return self._kind == "validate"

    def is_submit_model(self) -> bool:
        """``False``: single models never leave the device."""
        return False

    def get_task_name(self) -> str:
        """``train``, or ``validate`` for a model that is to be evaluated only."""
        return self._kind

    def get_job_id(self) -> str:
        """The name of the Tributary task."""
        return self._task_name

    def get_site_name(self) -> str:
        """The participant's name, or its id."""
        return self._name or self._participant.id or ""

    def system_info(self) -> dict[str, str]:
        """``job_id`` and ``site_name``."""
        return {"job_id": self.get_job_id(), "site_name": self.get_site_name()}

    def get_config(self) -> dict[str, Any]:
        """The settings of the exchange, and the task's ``plan``, by its names in the task file."""
        exchange = {"train_with_eval": False, "train_task_name": "train", "eval_task_name": "validate", "transfer_type": "FULL"}
        plan = {} if self._task is None else bridge.plan_values(self._task.plan)
        return {"TASK_NAME": self._kind, "TASK_EXCHANGE": exchange, "plan": plan, **self.system_info()}

    def log(self, key: str, value: Any, data_type: Any = None, **more: Any) -> bool:
        """Writes a value to the Python log of this process; it does not leave the device."""
        _log.info("%s = %s %s", key, value, more)
        return True

    def shutdown(self) -> None:
        """Ends taking part."""
        self._is_over = True
        self._participant.close()
