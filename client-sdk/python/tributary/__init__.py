"""Federated learning with Tributary.

A participant takes part with its own training::

    import tributary as tb

    me = tb.participant("https://federation.example:8443", ca="ca.pem", token="…", journal="journal")
    for task in me.tasks():
        task.send(train(task.parameters, task.plan), examples=len(data))

A script that `tributary participant run --trainer` starts, on any number of processes, asks for its :func:`job` instead, or
goes through the :func:`jobs` of all rounds.

An operator creates tasks and follows them: :class:`Operator`.
"""

from ._tributary import (
    ClosedError,
    ConfigurationError,
    EnrollmentError,
    Error,
    JournalError,
    ModelError,
    Overdue,
    UpdateError,
)
from .analysis import Analysis, Column, Target
from .graph import GraphModel, Gradient, import_onnx
from .machine import Machine, Todo, machine
from .model import Model
from .operator import Operator, Problem
from .participant import Participant, participant, withdraw
from .program import Job, JobError, job, jobs
from .simulation import simulate
from .task import AdapterBase, Optimizer, Plan, Task
from .torch_module import task_from

__all__ = [
    "AdapterBase",
    "Analysis",
    "ClosedError",
    "Column",
    "ConfigurationError",
    "EnrollmentError",
    "Error",
    "Gradient",
    "GraphModel",
    "Job",
    "JobError",
    "JournalError",
    "Machine",
    "Model",
    "ModelError",
    "Operator",
    "Optimizer",
    "Overdue",
    "Participant",
    "Plan",
    "Problem",
    "Target",
    "Task",
    "Todo",
    "UpdateError",
    "import_onnx",
    "job",
    "jobs",
    "machine",
    "participant",
    "simulate",
    "task_from",
    "withdraw",
]
