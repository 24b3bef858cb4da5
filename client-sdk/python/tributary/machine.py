"""A participant that the app drives, in the app's own thread."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from . import _tributary
from .model import Model
from .participant import _data_use, _device, _options, participant
from .task import Task, _whole


@dataclasses.dataclass(frozen=True)
class Todo:
    """What to do next."""

    #: ``send``, ``fetch``, ``train`` or ``journal``: :meth:`Machine.perform`. ``busy``: another thread performs what was said.
    #: ``wait_until``: nothing before :attr:`until`. ``task_over`` and ``stopped``: nothing any more.
    what: str
    #: Of ``wait_until``: seconds on the clock of ``elapsed``.
    until: float | None = None

    @property
    def is_performed(self) -> bool:
        """Whether :meth:`Machine.perform` does it."""
        return self.what in ("send", "fetch", "train", "journal")

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to do any more."""
        return self.what in ("task_over", "stopped")


class Machine:
    """A participant that its caller drives; made by :func:`machine`. It has no thread of its own::

        with tb.machine("https://federation.example:8443", ca="ca.pem", token="…", journal="journal") as me:
            while not (todo := me.tick(charging=True, unmetered=True, idle=True, thermal="nominal")).is_over:
                if todo.is_performed:
                    me.perform(lambda task: task.send(train(task.parameters, task.plan), examples=len(data)))
                elif todo.what == "wait_until":
                    ...  # anything else, until then or earlier

    Once it is closed, and in a child that was forked, whatever it is asked raises :class:`ClosedError`.
    """

    #: The number of training examples that the coordinator is told of; :meth:`Task.send` sets it, too.
    examples: int

    def __init__(self, native: _tributary.Machine, examples: int) -> None:
        self._native = native
        self.examples = examples

    def tick(
        self,
        *,
        elapsed: float | None = None,
        charging: bool | None = None,
        unmetered: bool | None = None,
        idle: bool | None = None,
        battery_percent: int | None = None,
        thermal: str | None = None,
    ) -> Todo:
        """Says what to do next; neither waits nor starts a thread.

        While a thread performs what was said, the answer is ``busy``, unless the round is left meanwhile: because its time is up, or
        the conditions have not held for ten seconds and no checkpoint was saved.

        :param elapsed: seconds on a clock that never jumps, since any moment; by default on the library's own. The other arguments are
            those of :meth:`Participant.set_device`, for ``device_conditions``.
        :raises EnrollmentError, JournalError, Error: if it ended early.
        :raises ConfigurationError: if an argument cannot be used.
        """
        state = _device(charging, unmetered, idle, battery_percent, thermal)
        return Todo(*self._native.tick(elapsed, state, _whole(self.examples)))

    def perform(self, train: Callable[[Task], Any]) -> bool:
        """Does what the last tick said, in this thread, and waits for it; a check-in waits up to 25 seconds, and Ctrl-C is seen
        afterwards.

        If the tick said ``train`` and there is a job, ``train`` is called with it as a :class:`Task`, and answers it before it returns. If
        the task's ``should_pause`` says so, it may save a checkpoint and return without an answer, and is called again. What it raises is
        raised, and the task counts as failed. There is no job for the last version of a task that is over, which only a trainer in Rust
        measures: here it has no metrics. While it sends or fetches, a helper thread may look up the server's name, or read the model's
        file.

        :returns: whether there was something to do that no other thread does.
        """
        return self._native.perform(lambda job: train(Task(job, self)))

    def stop(self) -> None:
        """Has it end from the next tick on; an update that waits to be sent stays in the journal."""
        self._native.stop()

    def close(self) -> None:
        """Gives the journal back, which knows how to go on: at once, or, while another thread performs what was said, when that thread has done
        it. Does not wait. Another call does nothing, nor does one in a child that was forked."""
        self._native.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def id(self) -> str | None:
        """The participant's id, once it is enrolled."""
        return self._native.id

    @property
    def held_up(self) -> tuple[str, str] | None:
        """The condition of the device that held it up at the last tick, by name, and in words."""
        return self._native.held_up()

    @property
    def privacy_spent(self) -> list[dict[str, Any]]:
        """What was spent on each private task so far, as :attr:`Participant.privacy_spent`."""
        return json.loads(self._native.privacy_spent())

    @property
    def privacy_lifetime(self) -> dict[str, Any]:
        """What was spent on all tasks together, and the limit on it."""
        return json.loads(self._native.privacy_lifetime())

    @property
    def refusals(self) -> list[dict[str, Any]]:
        """What was refused so far, and why, as :attr:`Participant.refusals`."""
        return json.loads(self._native.refusals())

    @property
    def data_use(self) -> dict[str, int]:
        """What was sent and received, as of the last tick, as :attr:`Participant.data_use`."""
        return _data_use(self._native.data_use())

    def model(self, task: str) -> Model | None:
        """The model of a task, as :meth:`Participant.model`."""
        found = self._native.model(task)
        return None if found is None else Model(found)

    @property
    def models(self) -> list[str]:
        """The tasks that there is a model of, the latest last."""
        return self._native.models()


def machine(server: str | None = None, **settings: Any) -> Machine:
    """Opens a participant that its caller drives. The arguments are those of :func:`participant`; ``on_event`` is called by the thread
    that ticks, and nothing is printed. Starts no thread, and sends nothing. It has the journal for itself until it is closed.

    :raises ConfigurationError, EnrollmentError, JournalError: if it cannot be opened.
    """
    import inspect  # It takes a while, and few need it.

    given = inspect.signature(participant).bind(server, **settings)
    given.apply_defaults()
    text, tell = _options(given.arguments)
    return Machine(_tributary.Machine(text, tell), given.arguments["examples"])
