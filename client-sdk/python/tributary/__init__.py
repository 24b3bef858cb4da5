"""Federated learning with Tributary.

A participant takes part with its own training::

    import tributary as tb

    me = tb.participant("https://federation.example:8443", ca="ca.pem", token="…", journal="journal")
    for task in me.tasks():
        task.send(train(task.parameters, task.plan), examples=len(data))

An operator creates tasks and follows them: :class:`Operator`.
"""

from ._tributary import (
    ClosedError,
    ConfigurationError,
    EnrollmentError,
    Error,
    JournalError,
    Overdue,
    UpdateError,
)
from .machine import Machine, Todo, machine
from .model import Model
from .operator import Operator, Problem
from .participant import Participant, Plan, Task, participant
from .simulation import simulate

__all__ = [
    "ClosedError",
    "ConfigurationError",
    "EnrollmentError",
    "Error",
    "JournalError",
    "Machine",
    "Model",
    "Operator",
    "Overdue",
    "Participant",
    "Plan",
    "Problem",
    "Task",
    "Todo",
    "UpdateError",
    "machine",
    "participant",
    "simulate",
]
