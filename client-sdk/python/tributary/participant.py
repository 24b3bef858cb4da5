"""Taking part: a participant, and the tasks it is given."""

from __future__ import annotations

import atexit
import collections
import contextlib
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Union

from . import _tributary
from .model import Model
from .settings import as_json, made, milliseconds, path, pem
from .task import Task, _whole

#: Seconds of an ask: so long a cancelled one may go on in its thread, and so often others look for what it has found.
_SLICE = 0.2
#: Seconds for the participants that are still open when the interpreter exits.
_LAST = 5.0

_open: weakref.WeakSet[Participant] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes what is open: an interpreter that shuts down cannot be called by ``on_event`` any more."""
    last = list(_open)
    for one in last:
        with contextlib.suppress(_tributary.ClosedError):
            one.stop()
    deadline = time.monotonic() + _LAST
    for one in last:
        one.close(max(0.0, deadline - time.monotonic()))


class Participant:
    """A participant on a thread of its own; made by :func:`participant`. Usable as a context manager, also with ``async with``.

    In asyncio, :meth:`tasks` and :meth:`aclose` wait beside the event loop. Whatever else it or a task is asked may take a moment, such as for
    the journal; any thread may ask, as in ``await asyncio.to_thread(me.model, "digits")``.
    """

    def __init__(self, native: _tributary.Participant, examples: int, reporter: Reporter | None = None) -> None:
        self._native = native
        self._reporter = reporter
        self._examples = examples
        #: Found by asks that were given up.
        self._kept: collections.deque[_tributary.Job] = collections.deque()
        _open.add(self)

    def tasks(self) -> Tasks:
        """The tasks it is given, one after the other, until its task is over or it is closed.

        Waits without holding the interpreter's lock; Ctrl-C works. Also for ``async for``.
        """
        return Tasks(self)

    def _report(self, outcome: str) -> None:
        """Prints how it ended."""
        if self._reporter is not None:
            self._reporter.end(outcome)

    @property
    def id(self) -> str | None:
        """The participant's id, once it is enrolled."""
        return self._native.id

    @property
    def examples(self) -> int:
        """The number of training examples that the coordinator is told of."""
        return self._examples

    @examples.setter
    def examples(self, examples: int) -> None:
        self._native.set_examples(_whole(examples))
        self._examples = examples

    @property
    def privacy_spent(self) -> list[dict[str, Any]]:
        """What was spent on each private task so far, from the participant's own ledger."""
        return json.loads(self._native.privacy_spent())

    @property
    def privacy_lifetime(self) -> dict[str, Any]:
        """What was spent on all tasks together, and the limit on it."""
        return json.loads(self._native.privacy_lifetime())

    @property
    def refusals(self) -> list[dict[str, Any]]:
        """What was refused so far, and why, the latest last: of each of the last fifty reasons the attempt that was refused last (``task``,
        ``round``, ``attempt``), ``code`` (what the coordinator was told, or ``None``), ``reason`` (in words, which stay on the device),
        ``at_ms`` (since 1970) and ``times``. From the journal, so earlier processes count."""
        return json.loads(self._native.refusals())

    def model(self, task: str) -> Model | None:
        """The model of a task, for use on this device: from the journal, so also offline. The device's own where the task personalizes; otherwise
        the version that its last round began with, or the last version once the task is over. ``None`` if there is none yet."""
        found = self._native.model(task)
        return None if found is None else Model(found)

    @property
    def models(self) -> list[str]:
        """The tasks that there is a model of, the latest last."""
        return self._native.models()

    def set_device(
        self,
        *,
        charging: bool | None = None,
        unmetered: bool | None = None,
        idle: bool | None = None,
        battery_percent: int | None = None,
        thermal: str | None = None,
    ) -> None:
        """Reports what the device is like, for ``device_conditions``, which are looked at at once. ``thermal`` is ``nominal``,
        ``fair``, ``serious`` or ``critical``."""
        self._native.set_device(_device(charging, unmetered, idle, battery_percent, thermal))

    @property
    def held_up(self) -> tuple[str, str] | None:
        """The condition of the device that holds it up now, by name, and in words."""
        return self._native.held_up()

    @property
    def data_use(self) -> dict[str, int]:
        """Bytes sent and received today (UTC), and ever with this journal; without those of TLS."""
        return _data_use(self._native.data_use())

    def pause(self) -> None:
        """Rests, and sends nothing until :meth:`resume`. A task under way should pause: once it has saved a checkpoint, or in ten seconds, it
        is taken back, and comes again if its round still waits. If it has saved none by then, its round is given up, as is any other whose
        update is not made."""
        self._native.pause()

    def resume(self) -> None:
        """Ends a pause."""
        self._native.resume()

    def stop(self) -> None:
        """Asks it to stop; :meth:`tasks` ends when it has."""
        self._native.stop()

    def close(self, timeout: float = 10.0) -> bool:
        """Stops it and waits for its end, for at most ``timeout`` seconds. The journal knows how to go on.

        :returns: whether it has ended in time. If not, ``on_event`` does not return, and its thread is left behind with the journal.
        """
        return self._native.close(timeout)

    async def aclose(self, timeout: float = 10.0) -> bool:
        """:meth:`close`, while the event loop goes on, also if the caller is cancelled."""
        import asyncio  # It takes as long as all the rest, and who gets here has it.

        # At once: the loop's threads may all be at work, and end because of it.
        with contextlib.suppress(_tributary.ClosedError):
            self.stop()
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self.close, timeout))

    def __enter__(self) -> Participant:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Participant:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Reporter:
    """Prints a line for what a person waits for, to standard error, and no line twice in a row."""

    def __init__(self, task: str | None) -> None:
        self._task = task
        self._last: str | None = None

    def tell(self, name: str, _fields: str, line: str | None) -> None:
        """Called with every event."""
        if line is not None:
            self._print(line)
        elif name in ("assigned", "to_train"):
            # A wait after this one is another.
            self._last = None

    def end(self, outcome: str) -> None:
        self._print("the task is over" if outcome == "task_over" else "stopped; the journal knows how to go on")

    def _print(self, line: str) -> None:
        if line == self._last:
            return
        self._last = line
        # A program without a console has none.
        if sys.stderr is not None:
            print(f"tributary{f' ({self._task})' if self._task else ''}: {line}", file=sys.stderr, flush=True)


class Tasks:
    """The tasks of a participant, for ``for`` and ``async for``."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        while (task := self._within(_SLICE)) is None:
            pass
        return task

    def _within(self, seconds: float) -> Task | None:
        """The next task; ``None`` if none came in this time.

        :raises StopIteration: if none will.
        """
        found = self._kept() or self._participant._native.next(seconds)
        if isinstance(found, str):
            self._participant._report(found)
            raise StopIteration
        return None if found is None else Task(found, self._participant)

    def __aiter__(self) -> AsyncIterator[Task]:
        return self

    async def __anext__(self) -> Task:
        import asyncio  # It takes as long as all the rest, and who gets here has it.

        while True:
            found: _Found = self._kept()
            if found is None:
                ask = _Ask(self._participant)
                try:
                    await asyncio.get_running_loop().run_in_executor(None, ask.look)
                except BaseException:
                    ask.give_up()
                    raise
                found = ask.found
            if isinstance(found, str):
                self._participant._report(found)
                raise StopAsyncIteration
            if found is not None:
                return Task(found, self._participant)

    def _kept(self) -> _tributary.Job | None:
        try:
            return self._participant._kept.popleft()
        except IndexError:  # Not asked before: another thread might be quicker.
            return None


#: A job, or how the participant ended, or nothing so far.
_Found = Union[_tributary.Job, str, None]


class _Ask:
    """One ask for a job, in a thread, by somebody who may give it up at any moment: what it then finds is for whoever asks next."""

    def __init__(self, participant: Participant) -> None:
        self.found: _Found = None
        self._participant = participant
        self._is_given_up = False
        self._lock = threading.Lock()

    def look(self) -> None:
        found = self._participant._native.next(_SLICE)
        with self._lock:
            self.found = found
            if self._is_given_up:
                self._keep()

    def give_up(self) -> None:
        with self._lock:
            self._is_given_up = True
            self._keep()

    def _keep(self) -> None:
        found, self.found = self.found, None
        if found is not None and not isinstance(found, str):
            self._participant._kept.append(found)


def participant(
    server: str | None = None,
    *,
    journal: str | os.PathLike[str],
    ca: str | os.PathLike[str] | None = None,
    token: str | None = None,
    task: str | None = None,
    name: str | None = None,
    examples: int = 0,
    trains_within: bool = False,
    trains_adapters: bool = False,
    answers_analyses: bool = False,
    base_model: str | os.PathLike[str] | None = None,
    labels: Mapping[str, str] | None = None,
    attributes: Mapping[str, float | str] | None = None,
    secure_aggregation: Mapping[str, Any] | None = None,
    privacy: Mapping[str, Any] | None = None,
    members_ca: str | os.PathLike[str] | None = None,
    coordinator_keys: Sequence[str] = (),
    signed_requests: bool = False,
    balancer_ca: str | os.PathLike[str] | None = None,
    proxy: str | None = None,
    journal_key: str | os.PathLike[str] | None = None,
    journal_generation: str | os.PathLike[str] | None = None,
    max_model_bytes: int | None = None,
    accepted_graphs: Sequence[str] = (),
    keep_models: bool = True,
    checkpoint_every: float = 30.0,
    training_slice: float = 1.0,
    device_conditions: Mapping[str, Any] | None = None,
    seed: int | None = None,
    on_event: Callable[[str, dict[str, Any]], None] | None = None,
    quiet: bool = False,
) -> Participant:
    """Starts a participant. It prints a line to standard error when it is enrolled, when it waits and for what, when it refuses a round,
    when a request fails, and when it ends.

    :param server: the coordinator, ``https://host:port``. Where it is left out, ``TRIBUTARY_SERVER`` counts; for ``ca``,
        ``TRIBUTARY_CA``, and for ``token``, ``TRIBUTARY_ENROLLMENT_TOKEN``.
    :param journal: a folder for its state: key, certificate, pending update. It is sealed with the key in ``journal_key``
        (by default beside the folder). **Never restore it from a copy**: a participant that forgets what it sent can be
        made to send it again under the same masks. One process at a time.
    :param ca: the authority of the coordinator's certificate, as PEM or as a file. No other is trusted.
    :param token: the one-time token to enrol with; not needed once the journal has a certificate.
    :param task: the task it has data for. Without it, it takes any, and waits for the next one when a task is over.
    :param name: its name, unless the token says one.
    :param examples: how many training examples it has; :meth:`Task.send` keeps the number up to date.
    :param trains_within: whether the training heeds a task's :attr:`Task.anchor`, :attr:`Task.frozen` and :attr:`Task.correction`;
        :meth:`Task.train` does. Otherwise tasks with any of them are refused.
    :param trains_adapters: whether it trains adapters of :attr:`Task.base`; :meth:`Task.train` does. Otherwise tasks with adapters are
        refused.
    :param answers_analyses: whether it gives its rows for a task that is an analysis (:attr:`Task.analysis`), by :meth:`Task.answer`.
        Otherwise such tasks are refused.
    :param base_model: a safetensors file of the model that apps bring to tasks with ``base_sha256``.
    :param labels: what tasks may select by.
    :param attributes: what a task may ask the device about; the values never leave it.
    :param secure_aggregation: floors such as ``{"min_cohort": 50}``. By default it takes part where at least ten
        participants hide each other's updates; ``{"required": False}`` lets the coordinator read updates.
    :param privacy: limits such as ``{"required": True, "max_epsilon": 2.0, "lifetime": {"epsilon": 10.0}}``.
    :param members_ca: the authority that certifies participants, if it is not ``ca``.
    :param coordinator_keys: the keys that may sign where models come from, as ``tributary audit head`` shows them. By default the
        first that signs, from then on.
    :param signed_requests: for a coordinator behind a balancer that ends TLS, whose certificate the device believes or
        ``balancer_ca`` signed.
    :param proxy: the HTTP proxy that leads to the coordinator, ``http://[USER:PASSWORD@]HOST[:PORT]``, or ``none``. By default the
        variables ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` name it.
    :param journal_generation: a file that tells the journal's latest state; best on another disk than the folder.
    :param max_model_bytes: the largest model that it accepts; 256 MB by default.
    :param accepted_graphs: the SHA-256 digests of the graph files that it accepts, in hexadecimal. Tasks with other graphs are refused.
        By default any graph is accepted.
    :param keep_models: whether the journal keeps the last model of each task for :meth:`Participant.model`, all of them in
        ``max_model_bytes`` together.
    :param device_conditions: what must hold of the device, whose state :meth:`Participant.set_device` reports: ``charging``,
        ``unmetered``, ``idle`` (true by default), ``min_battery_percent``, ``max_thermal`` (``fair`` by default) and
        ``max_bytes_per_day``. What was not reported does not hold.
    :param checkpoint_every: seconds between two checkpoints in the journal (:meth:`Task.save_checkpoint`).
    :param training_slice: seconds after which a training looks at the device's conditions again (:attr:`Task.should_pause`).
    :param seed: makes rounds repeatable, for experiments.
    :param on_event: called with the name and the fields of everything that happens, from another thread. It must return at once. What it
        raises is printed, as Python does with callbacks, and changes nothing. It is not called any more once the participant is closed,
        which happens at the interpreter's exit at the latest.
    :param quiet: whether it prints nothing. With ``on_event`` it never does.
    :raises ConfigurationError, EnrollmentError, JournalError: if it cannot start.
    """
    reporter = None if quiet or on_event is not None else Reporter(task)
    text, tell = _options(locals())
    return Participant(_tributary.Participant(text, tell if reporter is None else reporter.tell), examples, reporter)


def _options(given: Mapping[str, Any]) -> tuple[str, Callable[[str, str, str | None], None] | None]:
    """The arguments of :func:`participant` as the native part takes them."""
    options: dict[str, Any] = {
        **_connection(given),
        "token": given["token"] or os.environ.get("TRIBUTARY_ENROLLMENT_TOKEN"),
        "examples": _whole(given["examples"]),
        "labels": made("labels", given["labels"] or {}, dict),
        "attributes": made("attributes", given["attributes"] or {}, dict),
        "accepted_graphs": made("accepted_graphs", given["accepted_graphs"], list),
        "checkpoint_every_ms": milliseconds("checkpoint_every", given["checkpoint_every"]),
        "training_slice_ms": milliseconds("training_slice", given["training_slice"]),
    }
    able = ("trains_within", "trains_adapters", "answers_analyses")
    plain = ("task", "name", *able, "max_model_bytes", "keep_models", "seed")
    options.update({name: given[name] for name in plain})
    options.update({"base_model": path("base_model", given["base_model"])} if given["base_model"] is not None else {})
    policies = ("secure_aggregation", "device_conditions", "privacy")
    options.update({name: made(name, given[name], dict) for name in policies if given[name] is not None})
    on_event = given["on_event"]
    if on_event is None:
        return as_json(options), None
    if not callable(on_event):
        raise _tributary.ConfigurationError(f"on_event cannot be used: {type(on_event).__name__} cannot be called")
    return as_json(options), lambda name, fields, _: on_event(name, json.loads(fields))


def _connection(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options for the journal, and for the way to the coordinator."""
    server = given["server"] or os.environ.get("TRIBUTARY_SERVER")
    if not server:
        raise _tributary.ConfigurationError("a participant needs the address of its coordinator: give it, or set TRIBUTARY_SERVER")
    options: dict[str, Any] = {
        "server": server,
        "journal": path("journal", given["journal"]),
        "ca_pem": pem("ca", given["ca"] or os.environ.get("TRIBUTARY_CA")),
        "members_ca_pem": pem("members_ca", given["members_ca"]),
        "coordinator_keys": made("coordinator_keys", given["coordinator_keys"], list),
        "balancer_ca_pem": pem("balancer_ca", given["balancer_ca"]),
        "signed_requests": given["signed_requests"],
    }
    options.update({name: path(name, given[name]) for name in ("journal_key", "journal_generation") if given[name] is not None})
    options.update({"proxy": given["proxy"]} if given["proxy"] is not None else {})
    return options


def withdraw(
    server: str | None = None,
    *,
    journal: str | os.PathLike[str],
    ca: str | os.PathLike[str] | None = None,
    members_ca: str | os.PathLike[str] | None = None,
    coordinator_keys: Sequence[str] = (),
    signed_requests: bool = False,
    balancer_ca: str | os.PathLike[str] | None = None,
    proxy: str | None = None,
    journal_key: str | os.PathLike[str] | None = None,
    journal_generation: str | os.PathLike[str] | None = None,
) -> dict[str, str]:
    """Withdraws this journal's participant, which must be closed: the coordinator revokes it for good.

    The arguments are those of :func:`participant`. Waits for the coordinator, for some minutes at most. After an error, and for another
    statement, it may be repeated. The journal stays as it is; delete it to delete personalized models.

    :return: the coordinator's signed statement about the rounds and versions that contain the participant's updates, verified:
        ``statement``, which is JSON, and ``signature``. Store both as evidence.
    :raises JournalError: if the journal cannot be read, such as while a participant uses it.
    :raises EnrollmentError: if the journal has no participant, or its certificate has expired.
    :raises ConfigurationError: if a setting cannot be used.
    :raises Error: if the coordinator cannot be reached.
    """
    statement, signature = _tributary.withdraw(as_json(_connection(locals())))
    return {"statement": statement, "signature": signature}


def _device(
    charging: bool | None, unmetered: bool | None, idle: bool | None, battery_percent: int | None, thermal: str | None
) -> str:
    """The device's state as the native part takes it."""
    state = {"charging": charging, "unmetered": unmetered, "idle": idle, "battery_percent": battery_percent, "thermal": thermal}
    return as_json(state)


def _data_use(counted: Sequence[int]) -> dict[str, int]:
    return dict(zip(("sent_today", "received_today", "sent", "received"), counted))
