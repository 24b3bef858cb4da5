"""One model to train, and how, or an analysis to give rows for."""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Union

from . import _tributary
from .analysis import Analysis, table_of
from .inputs import feed, inputs_of, is_graph, targets_of
from .model import views
from .nested import like
from .program import _WRAPPERS, _is_counter
from .update import copy_into, rows_of

if TYPE_CHECKING:
    import numpy as np

    class Module(Protocol):
        """A module of PyTorch."""

        def state_dict(self) -> Mapping[str, Any]: ...

    Parameters = Union[Mapping[str, Any], Sequence[Any], Module]


class _HasExamples(Protocol):
    examples: int


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The rule of a step; its state begins anew in each round."""

    #: ``sgd``, or ``adamw`` (Loshchilov and Hutter 2019) with the plan's weight decay apart from the gradient.
    name: str = "sgd"
    #: Of ``adamw``: decay rates of the means of gradients and of their squares, and what is added to the denominator.
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the task wants the model trained. Settings that it leaves open are ``None``. A training that cannot do what is asked refuses
    the task (:meth:`Task.refuse`)."""

    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    #: FedProx μ: strength of the pull towards the received model; 0 if there is none.
    proximal_mu: float = 0.0
    #: Number of steps; overrides ``epochs``.
    steps: int | None = None
    #: Mini-batches whose gradients make one step.
    accumulate: int = 1
    #: L2 norm to which the gradient of a step is clipped.
    gradient_clip: float | None = None
    optimizer: Optimizer = Optimizer()
    #: Everything else that the task says, by its name in the task file.
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def _read(cls, text: str) -> Plan:
        said = json.loads(text)
        optimizer = said.get("optimizer", {})
        said["optimizer"] = Optimizer(**{field.name: optimizer[field.name] for field in dataclasses.fields(Optimizer) if field.name in optimizer})
        own = {field.name for field in dataclasses.fields(cls)} - {"more"}
        return cls(
            **{name: value for name, value in said.items() if name in own},
            more={name: value for name, value in said.items() if name not in own},
        )


@dataclasses.dataclass(frozen=True)
class AdapterBase:
    """The frozen model whose adapters a task trains: a layer of it computes with its matrix ``NAME`` + ``scale`` · B · A, where A and B are
    the task's parameters ``NAME.lora_a`` and ``NAME.lora_b``."""

    #: The model: an array of float32 for each tensor, by name.
    parameters: Mapping[str, np.ndarray]
    #: The factor of B · A.
    scale: float


class Task:
    """One model to train, in one round, or one :attr:`analysis` to give rows for. It takes one answer: :meth:`send`, or :meth:`answer` to an
    analysis, :meth:`refuse` or :meth:`fail`, in the process that got it: a forked child is refused with :class:`ClosedError`.

    A task without an answer counts as failed once it is forgotten: the round goes on without this participant. An answer that comes too
    late is dropped without an error: :meth:`send` returns ``False``, and the loop goes on with the next task.
    """

    #: The task's name.
    name: str
    #: Number of the round, from 1.
    round: int
    #: What it is for; the tasks of one round may differ in it. ``shared``: the shared model, as it was received and with the tensors that
    #: stay on the device in it, or shared adapters; the update is made of it. ``own``: the device's own model, or its own part of one.
    purpose: str
    #: How to train.
    plan: Plan
    #: Names of the tensors that must stay as they are; only for an app that says ``trains_within``.
    frozen: list[str]
    #: A seed for shuffling and the like; repeatable if the participant has one.
    seed: int
    #: The task's description of its model, if it has one.
    architecture: Any
    #: What the task asks of this device's rows, if it is an analysis; ``None`` if it trains a model. Only for an app that says
    #: ``answers_analyses``.
    analysis: Analysis | None
    #: Names of the metrics that the task collects; others are dropped.
    metrics: list[str]
    #: The model: an array of float32 for each tensor, by name. They may be trained in place. None of an analysis, except an evaluation,
    #: which measures this model.
    parameters: dict[str, np.ndarray]

    def __init__(self, job: _tributary.Job, participant: _HasExamples) -> None:
        self._job = job
        self._participant = participant
        self.name, self.round, self.seed, self.metrics = job.task, job.round, job.seed, job.metrics
        self.purpose, self.frozen = job.purpose, job.frozen
        self.plan = Plan._read(job.plan)
        self.architecture = json.loads(job.architecture) if job.architecture else None
        self.analysis = Analysis._read(job.analytics) if job.analytics else None
        self._flat = job.take_values()
        self.parameters = views(self._flat, job.tensors)

    def __repr__(self) -> str:
        what = f"{self._flat.size} parameters" if self.analysis is None else f"an analysis ({self.analysis.kind})"
        return f"<Task {self.name!r}, round {self.round}, {what}>"

    @property
    def anchor(self) -> dict[str, np.ndarray] | None:
        """A copy of the model that ``plan.proximal_mu`` pulls towards; ``None`` if that is the one that the task begins with. Only for an app
        that says ``trains_within``."""
        return self._views(self._job.anchor())

    @property
    def correction(self) -> dict[str, np.ndarray] | None:
        """A copy of what must be added to the gradient of every step, if anything. Only for an app that says ``trains_within``."""
        return self._views(self._job.correction())

    @property
    def base(self) -> AdapterBase | None:
        """A copy of the frozen model, if :attr:`parameters` are its adapters. Only for an app that says ``trains_adapters``."""
        found = self._job.base()
        if found is None:
            return None
        flat, tensors, scale = found
        return AdapterBase(views(flat, tensors), scale)

    def _views(self, flat: np.ndarray | None) -> dict[str, np.ndarray] | None:
        return None if flat is None else views(flat, self._job.tensors)

    @property
    def is_overdue(self) -> bool:
        """Whether the round no longer waits: training may stop. A task that was paused comes again, with its checkpoint."""
        return self._job.is_overdue

    @property
    def checkpoint(self) -> bytes | None:
        """What this task's training saved before it was paused or its process was killed; ``None`` if it begins."""
        return self._job.checkpoint()

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether the last checkpoint is older than ``checkpoint_every``."""
        return self._job.is_checkpoint_due

    def save_checkpoint(self, state: bytes, *, strict: bool = False) -> bool:
        """Keeps the state of the training, so that it goes on from there after a pause and after its process was killed.

        It replaces the last one, and is sealed in the journal, once in ``checkpoint_every`` seconds; it goes with the round.

        :returns: whether it was kept. If not, the round no longer waits, or the task was paused: training may stop.
        :raises UpdateError: if it is larger than four times ``max_model_bytes``.
        :raises Overdue: with ``strict``, instead of returning ``False``.
        :raises ClosedError: in a forked child.
        """
        return _in_time(lambda: self._job.save_checkpoint(state), strict)

    @property
    def should_pause(self) -> bool:
        """Whether the training should rest: save a checkpoint then, within ten seconds. The task is taken back, and comes again when it goes
        on, if its round still waits; the round of a task that has never saved one is given up."""
        return self._job.should_pause

    def load_into(self, module: Any) -> Any:
        """Loads the parameters into a PyTorch module whose ``state_dict`` has the task's names; returns the module. Counters that the task
        does not name, such as the number of batches seen, stay as they are; prefixes that wrappers add to names are ignored."""
        import torch

        left = {name: torch.from_numpy(value.copy()) for name, value in self.parameters.items()}
        state = {}
        for name, value in module.state_dict().items():
            plain = _WRAPPERS.sub("", name)
            if plain in left:
                state[name] = left.pop(plain)
            elif _is_counter(value):
                state[name] = value
        module.load_state_dict({**state, **left})
        return module

    def parameters_like(self, tree: Any) -> Any:
        """The parameters, nested as ``tree`` is: for JAX and Flax, whose models are dictionaries, lists and tuples within one another. The name of
        an array is the keys that lead to it, joined by dots or by slashes, as in ``Dense_0.kernel``; :meth:`send` takes the same nesting.

        An array is one of JAX, of the same precision, where ``tree`` has one, and one of NumPy otherwise; ``tree`` stays as it is.

        :raises UpdateError: if ``tree`` has other names or shapes than the task.
        """
        return like(tree, self.parameters)

    def send(
        self,
        parameters: Parameters,
        *,
        examples: int,
        metrics: Mapping[str, float | tuple[float, int]] | None = None,
        strict: bool = False,
    ) -> bool:
        """Hands in the trained model. What leaves the device is clipped, weighted and masked as the task prescribes.

        ``parameters`` are arrays by name, also nested (:meth:`parameters_like`), arrays in the order of :attr:`parameters`, or anything with a
        ``state_dict()`` such as a PyTorch module; arrays of floating point numbers in any byte order and precision, tensors of PyTorch and JAX among them.
        A module's counters that the task does not name, such as ``num_batches_tracked`` of BatchNorm, are left out.

        ``metrics`` that are not of the training itself (``train_…``) count as those of the received model: measure the model that the task
        begins with. A task that weighs updates by the loss takes ``loss`` from them. Where :attr:`purpose` is ``own`` they count for
        nothing, but for those of the device's own model (``personal_…``). A metric of another number of examples than ``examples`` is a tuple,
        the value and that number.

        :returns: whether it was handed in. If not, the round no longer waited, or the task was paused: go on with the next task.
        :raises UpdateError: if a tensor is missing, unknown, of another shape or type, or not finite, or a metric is no number. Nothing was
            sent, and the task still takes an answer.
        :raises Overdue: with ``strict``, instead of returning ``False``.
        """
        self._trains()
        count = _whole(examples)
        copy_into(self._flat, self.parameters, parameters)
        given = _measured(metrics or {}, count)
        sent = _in_time(lambda: self._job.finish(self._flat, count, given), strict)
        if sent:
            self._participant.examples = examples
        return sent

    def train(self, features: Any, labels: Any, *, held_out: tuple[Any, Any] | None = None, strict: bool = False) -> bool:
        """Trains the task's model, one of the ready ones (``linear``, ``mlp``, ``cnn``) or a graph, as the plan says, and as the task asks
        beside it, and sends the result: for an app without a training function. It runs in this thread on one core, beginning with
        :attr:`parameters`, and leaves checkpoints by itself.

        :param features: a row of numbers for each example; images are flattened in the order channel, row, column. Of a graph an array for
            each input, by name, with the examples as first axis; or the array itself if the graph has one input.
        :param labels: the class of each row, from 0. Of a graph its targets: a class for each example, a token for each position, or
            numbers in the shape of the output, as its loss takes them.
        :param held_out: features and labels that nobody trains on: a task whose :attr:`purpose` is ``shared`` also sends the ``loss`` of
            the initial model on them, and its ``accuracy`` unless the model predicts numbers. One whose purpose is ``own`` sends those
            of the trained model, as ``personal_loss`` and so on.
        :returns: whether it was handed in. If not, the task was paused, and comes again, or the round no longer waited.
        :raises UpdateError: if the examples do not fit the model, or the task names no ready model. Nothing was sent, and the task still
            takes an answer.
        :raises Overdue: with ``strict``, if the round no longer waits.
        """
        self._trains()
        train = self._train_graph if is_graph(self.architecture) else self._train_rows
        try:
            count = train(features, labels, held_out)
        except _tributary.Overdue:
            if strict:
                raise
            return False
        if count is None:
            return False
        self._participant.examples = count
        return True

    def _train_rows(self, features: Any, labels: Any, held_out: tuple[Any, Any] | None) -> int | None:
        """Trains a ready model; the number of examples, or ``None`` if it was paused."""
        flat, classes, width = rows_of(features, labels)
        measured: tuple[np.ndarray, np.ndarray] | None = None
        if held_out is not None:
            held_flat, held_classes, held_width = rows_of(*held_out)
            if held_width != width:
                raise _tributary.UpdateError(f"rows that are held out have {held_width} numbers, and the others {width}")
            measured = held_flat, held_classes
        return self._job.train(self._flat, flat, classes, width, measured)

    def _train_graph(self, inputs: Any, targets: Any, held_out: tuple[Any, Any] | None) -> int | None:
        """Trains a graph; the number of examples, or ``None`` if it was paused."""
        expected, loss = inputs_of(self.architecture["graph"]), self.architecture["loss"]

        def examples(inputs: Any, targets: Any) -> tuple[list[np.ndarray], np.ndarray, int, int]:
            columns, count, length = feed(expected, inputs)
            return columns, targets_of(loss, count, targets), count, length

        return self._job.train_graph(self._flat, examples(inputs, targets), None if held_out is None else examples(*held_out))

    def answer(self, rows: Any, *, targets: Any = None, strict: bool = False) -> bool:
        """Answers an :attr:`analysis` with this device's rows. They stay on the device: what leaves it is what the analysis counts and sums of
        them, masked as the task prescribes.

        :param rows: an array of one row of numbers for each row, with the analysis' columns in their order (of a single column also the numbers
            alone), or an array for each column, by name: a mapping or a data frame, whose other columns are not looked at. A column that is
            repeated has so many numbers in a row. Give the same rows in the same order in each round.
            Of an evaluation the predictions of :attr:`parameters`: the probability of each class, or the predicted number.
        :param targets: what is to be predicted of each row: for an analysis with a ``target``. Of an evaluation the true class or number.
        :returns: whether it was handed in. If not, the round no longer waited, or the task was paused: go on with the next task.
        :raises UpdateError: if the rows are none, do not fit the analysis, or have what is not finite, or the task is no analysis. Nothing was
            sent, and the task still takes an answer.
        :raises Overdue: with ``strict``, instead of returning ``False``.
        """
        if self.analysis is None:
            raise _tributary.UpdateError("this task trains a model: it takes that, and no rows for an analysis")
        flat, width, of_each = table_of(self.analysis, rows, targets)
        counted: list[int] = []
        sent = _in_time(lambda: counted.append(self._job.answer(flat, width, of_each)), strict)
        if sent:
            self._participant.examples = counted[0]
        return sent

    def _trains(self) -> None:
        """Refuses what is no answer to an analysis."""
        if self.analysis is not None:
            raise _tributary.UpdateError("this task is an analysis: it takes rows, and no model")

    def refuse(self, reason: str | BaseException) -> None:
        """Says that this app does not do such tasks. The reason stays on the device. Where the round no longer waits, nobody is told."""
        _in_time(lambda: self._job.refuse(str(reason)), strict=False)

    def fail(self, reason: str | BaseException) -> None:
        """Says that training failed. The reason stays on the device. Where the round no longer waits, nobody is told."""
        _in_time(lambda: self._job.fail(str(reason)), strict=False)


def _in_time(answer: Callable[[], None], strict: bool) -> bool:
    """Whether somebody still waited for it."""
    try:
        answer()
    except _tributary.Overdue:
        if strict:
            raise
        return False
    return True


def _measured(metrics: Mapping[str, float | tuple[float, int]], count: int) -> list[tuple[str, float, int]]:
    """Metrics, each of so many examples unless it has a number of its own."""
    try:
        each = [(str(name), given if isinstance(given, tuple) else (given, count)) for name, given in metrics.items()]
        return [(name, float(value), _whole(examples)) for name, (value, examples) in each]
    except (AttributeError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise _tributary.UpdateError(f"metrics are {metrics!r}; they are a mapping of names to numbers: {error}") from error


def _whole(examples: int) -> int:
    try:
        count = -1 if isinstance(examples, bool) else operator.index(examples)
    except TypeError:
        count = -1
    if not 0 <= count < 2**64:
        raise _tributary.UpdateError(f"examples is {examples!r}; it is a number of examples, 0 or more")
    return count
