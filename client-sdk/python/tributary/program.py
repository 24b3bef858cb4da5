"""A training script that `tributary participant run --trainer` starts: it reads a job and leaves a result.

    import tributary

    job = tributary.job()
    model.load_state_dict(job.model())
    ...any training...
    job.done(model, examples=len(data), metrics={"train_loss": loss})

One with a slow start may stay, and take the jobs of all rounds: ``for job in tributary.jobs(): ...`` (``--trainer-keep``, or
``--trainer-attach`` where something else starts it).

This file needs nothing but Python's standard library, so a site may copy it beside its script as ``tributary.py``. It uses PyTorch or
NumPy if the script has imported them. Under `torchrun` every process makes these calls; rank 0 alone reads and writes the job's folder.
What the folder holds is in docs/PROGRAMS.md.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import math
import mmap
import os
import pathlib
import pickle
import re
import struct
import sys
import time
import types
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._tributary import Error as _Error
else:
    try:
        from ._tributary import Error as _Error
    except ImportError:  # This file alone, beside a script.
        _Error = Exception

#: Where the participant says which folder is the job's.
VARIABLE = "TRIBUTARY_JOB"
#: And which the folder of all jobs is, for a program that takes one after the other.
VARIABLE_OF_ALL = "TRIBUTARY_JOBS"
_REFUSED = 75
#: Equal to no value of a plan.
_NOTHING = object()
#: Seconds between two looks for a job, and those after which other processes hear that there is none: groups give up on who is silent.
_LOOK, _KEEP_ALIVE = 0.05, 60.0
#: The values of keys that a job may leave out: with these a plan asks for nothing.
_USUAL = {
    "accumulate": 1,
    "adaptive_mu": None,
    "budget": None,
    "fairness": None,
    "gradient_clip": None,
    "momentum": 0.0,
    "optimizer": {"name": "sgd"},
    "precision": "f32",
    "proximal_mu": 0.0,
    "schedule": None,
    "solver": None,
    "steps": None,
    "warmup": None,
    "weight_decay": 0.0,
}
#: Keys that the participant follows, with or without the program's help.
_PARTICIPANTS = frozenset({"budget", "fairness"})
#: What wrappers of PyTorch put into the names of tensors.
_WRAPPERS = re.compile(r"(^|(?<=\.))(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")


class JobError(_Error):
    """The job cannot be read, or its result cannot be written; the message says why."""


def job(folder: str | os.PathLike[str] | None = None) -> Job:
    """The job that this program was started for. Every process of a group calls this; with PyTorch, after ``init_process_group``.

    :param folder: of the job, instead of what ``TRIBUTARY_JOB`` says.
    """
    return Job(folder)


def jobs(folder: str | os.PathLike[str] | None = None, *, idle: float | None = None) -> Iterator[Job]:
    """The jobs of all rounds, one after the other, for a program that is started once (``--trainer-keep``) or by something else
    (``--trainer-attach``). Each ends with :meth:`Job.done` or :meth:`Job.refuse`. Every process of a group goes through them.

    :param folder: of all jobs, instead of what ``TRIBUTARY_JOBS`` says.
    :param idle: after so many seconds without a job it ends, so that a program that something else starts gives its machines back; without
        it never. The participant ends what it has started.
    """
    named = os.environ.get(VARIABLE_OF_ALL) if folder is None else folder
    if named is None:
        raise JobError(f"{VARIABLE_OF_ALL} is not set: `tributary participant run --trainer COMMAND --trainer-dir DIR --trainer-keep` sets it")
    within, processes = pathlib.Path(named), _Processes()
    until = math.inf if idle is None else time.monotonic() + idle
    while True:
        found = None
        if processes.rank == 0 or not processes.is_group:
            about = _next_job(within, min(until, time.monotonic() + _KEEP_ALIVE))
            found = about, about is None and time.monotonic() >= until
        about, is_over = processes.broadcast(found)
        if is_over:
            return
        if about is None:
            continue
        folder = within / pathlib.Path(about["folder"]).name
        taken = Job(folder, within, about)
        yield taken
        if not taken._is_over and taken.is_wanted():
            raise JobError(f"{folder} was given neither a result nor a refusal; a job that is_wanted needs one of them")
        # Rank 0 answers for all; without a group of PyTorch's nothing tells the others that it has.
        while taken.rank != 0 and not processes.is_group and taken.is_wanted():
            time.sleep(_LOOK)
        until = math.inf if idle is None else time.monotonic() + idle


class Job:
    """One training, or one evaluation, of one round."""

    #: ``train`` or ``evaluate``.
    kind: str
    #: The task's name, and its round, from 1.
    task: str
    round: int
    #: For shuffling and the like; the same in each process, and when the program is started again.
    seed: int
    #: How the task wants the model trained: ``job.plan.learning_rate``, named as in the task file.
    plan: types.SimpleNamespace
    #: When the round stops waiting, in seconds since 1970 by this machine's clock, or ``None``.
    deadline: float | None
    #: ``job.budget.steps`` and ``job.budget.seconds`` are the most that the round allows; ``None`` is no limit.
    budget: types.SimpleNamespace
    #: The task's description of its model, of its columns, and the metrics that it asks for.
    architecture: Any
    table: Any
    metrics: list[str]
    #: The shape of each tensor, by name.
    shapes: dict[str, tuple[int, ...]]
    #: This process, of how many.
    rank: int
    processes: int

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, within: pathlib.Path | None = None, told: dict[str, Any] | None = None
    ) -> None:
        # Of all jobs, if this is one of several.
        self._within = within
        named = os.environ.get(VARIABLE) if folder is None else folder
        self._torch = _Processes()
        atexit.unregister(_leave_group)
        self.rank, self.processes = self._torch.rank, self._torch.processes
        if told is None and (self.rank == 0 or not self._torch.is_group):
            if named is None:
                raise JobError(
                    f"{VARIABLE} is not set: this program is started by `tributary participant run --trainer COMMAND --trainer-dir DIR`; "
                    "on other machines than the first, call torch.distributed.init_process_group before tributary.job"
                )
            told = _read_job(pathlib.Path(named))
        about = told if within is not None else self._torch.broadcast(told)
        if about is None:
            raise JobError("rank 0 has read no job")
        self._folder = pathlib.Path(named or about["folder"])
        self.kind, self.task, self.round, self.seed = about["kind"], about["task"], about["round"], about["seed"]
        self.plan = types.SimpleNamespace(**{**_USUAL, **about["plan"]})
        deadline, budget = about.get("deadline"), about.get("budget") or {}
        self.deadline = None if deadline is None else deadline / 1000
        time_ms = budget.get("time_ms")
        self.budget = types.SimpleNamespace(steps=budget.get("steps"), seconds=None if time_ms is None else time_ms / 1000)
        self.architecture, self.table, self.metrics = about["architecture"], about["table"], about["metrics"]
        self.shapes = {tensor["name"]: tuple(tensor["shape"]) for tensor in about["tensors"]}
        #: Where this program keeps what it needs to go on when it is started again.
        self.checkpoint = Checkpoint(self._folder / "checkpoint", self._torch, self._unless_withdrawn)
        self._is_over = False

    @contextlib.contextmanager
    def _unless_withdrawn(self) -> Iterator[None]:
        """Nothing is written for a job of several whose folder is gone: nobody waits for it."""
        try:
            yield
        except FileNotFoundError:
            if self._within is None or self._folder.is_dir():
                raise

    def model(self) -> dict[str, Any]:
        """The model to begin with, by name: tensors of PyTorch or arrays of NumPy if the script has imported either, otherwise flat
        ``array.array``. They may be changed. In a group of PyTorch's every process calls this and has the whole model; rank 0 reads.
        For a model that no process can hold, see :meth:`load`.
        """
        return self._torch.share(self._read(), self.shapes)

    def load(self, module: Any) -> None:
        """Loads the model into a module of PyTorch, whatever wraps or shards it (DDP, ``fully_shard``, DTensor): each process keeps its
        part. Every process calls this.
        """
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=self._torch.is_group)
        set_model_state_dict(module, self._read(), options=options)

    def _read(self) -> dict[str, Any]:
        """The model where it is read: at rank 0 of a group, otherwise everywhere."""
        reads = self.rank == 0 or not self._torch.is_group
        return _read_tensors(self._folder / "model.safetensors", self.shapes) if reads else {}

    def progress(
        self, step: int, of: int | None = None, loss: float | None = None, samples_per_s: float | None = None, **more: Any
    ) -> None:
        """Tells the participant how far the training is. Cheap; from rank 0, elsewhere it does nothing.

        :param samples_per_s: by all processes together.
        :param more: what ``tributary silo report`` looks at: ``step_s`` (seconds of a step), ``communication_s`` (of it, spent waiting
            for other processes), ``utilisation`` (of the devices, 0 to 1; by itself that of rank 0's GPU, where the driver tells PyTorch);
            and whatever else the script likes to keep.
        """
        if self.rank != 0:
            return
        said: dict[str, Any] = {"step": int(step), "of": of, "loss": _number(loss), "samples_per_s": _number(samples_per_s)}
        said["processes"] = self.processes
        said["utilisation"] = self._torch.utilisation()
        said.update({name: _number(value) for name, value in more.items()})
        line = json.dumps({name: value for name, value in said.items() if value is not None}, allow_nan=False)
        with self._unless_withdrawn(), open(self._folder / "progress.jsonl", "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def done(
        self,
        model: Any = None,
        *,
        examples: int,
        metrics: Mapping[str, Any] | None = None,
        reach: float | None = None,
        steps: int | None = None,
    ) -> None:
        """Leaves the result. Every process calls this; rank 0 gathers what is sharded or held elsewhere, and writes.

        :param model: trained: a module, or its tensors by name (numbers of any kind). Needed to train, not to evaluate. A tensor that
            some processes do not have (a stage of a pipeline, an expert) comes from the first that has it.
        :param examples: trained or evaluated on, by all processes together.
        :param metrics: means over the examples, or pairs of a mean and the number of examples that it is of.
        :param reach: the sum of the learning rates, and the number of steps, where the task has FedNova.
        """
        if self._is_over:
            raise JobError("this job has its result already")
        if (model is None) == (self.kind == "train"):
            raise JobError("a training leaves a model, and an evaluation none: done(model, examples=…) or done(examples=…)")
        if model is not None:
            gathered = self._torch.gather(_state_of(model, self.shapes))
            if self.rank == 0:
                with self._unless_withdrawn():
                    _write(self._folder, "trained.safetensors", _safetensors(gathered, self.shapes))
        if self.rank == 0:
            measured = {name: _metric(name, value) for name, value in (metrics or {}).items()}
            result: dict[str, Any] = {"examples": _counted("examples", examples), "metrics": measured}
            if reach is not None:
                result.update(reach=float(reach), steps=_counted("steps", steps or 1))
            with self._unless_withdrawn():
                _write(self._folder, "result.json", [json.dumps(result, allow_nan=False).encode()])
        self._is_over = True
        # Whoever ends first may take the group with it.
        self._torch.barrier()
        if self._torch.is_group:
            atexit.register(_leave_group)

    def follow(self, *keys: str, **only: Any) -> bool:
        """Refuses the job if its plan asks for what the program does not do; the refusal names the key.

        :param keys: names in ``job.plan`` that the program follows, such as ``"learning_rate"``.
        :param only: names that it follows with this one value.
        :returns: whether the program can follow the plan. Without :func:`jobs`, a refusal ends the process instead.
        """
        for key, value in sorted(vars(self.plan).items()):
            if key in keys or key in _PARTICIPANTS or value == only.get(key, _USUAL.get(key, _NOTHING)):
                continue
            can = f"; it follows {json.dumps(only[key])} alone" if key in only else ""
            self.refuse(f"this program does not follow training.{key} = {json.dumps(value)}{can}")
            return False
        return True

    def is_wanted(self) -> bool:
        """Whether the participant still waits for the result, as this process sees it. One that it has started it ends; one of
        :func:`jobs` that something else has started may ask now and then, and go on with the next job.
        """
        return self._within is None or _is_waiting(self._within, self._folder.name)

    def refuse(self, why: str) -> None:
        """This site takes no part in the job. Ends the process, unless the job is one of :func:`jobs`: then it goes on with the next one.
        Where it is one of a group, each may call this; of :func:`jobs`, all together.
        """
        if self._folder.is_dir() and (self.rank == 0 or self._within is None):
            # `torchrun` ends with a status of its own.
            _write(self._folder, "refused", [why.encode()[:4096]])
        print(why, file=sys.stderr, flush=True)
        self._is_over = True
        if self._within is None:
            raise SystemExit(_REFUSED)


class Checkpoint(os.PathLike[str]):
    """The folder of a job that is the program's own: a path, with a state that is replaced as a whole."""

    def __init__(
        self, folder: pathlib.Path, processes: _Processes, unless_withdrawn: Callable[[], contextlib.AbstractContextManager[None]]
    ) -> None:
        self.path = folder
        self._torch = processes
        self._unless_withdrawn = unless_withdrawn

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def save(self, state: Any) -> None:
        """Keeps rank 0's state, whole or not at all: what ``torch.save`` takes, without PyTorch what ``pickle`` takes. Elsewhere it does
        nothing. States of shards are the script's own affair: this is a path, for ``torch.distributed.checkpoint`` too.
        """
        if self._torch.rank != 0:
            return
        draft = self.path / "state.new"
        with self._unless_withdrawn():
            with open(draft, "wb") as file:
                if self._torch.torch is None:
                    pickle.dump(state, file)
                else:
                    self._torch.torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path / "state")

    def load(self) -> Any:
        """What was saved last, in every process; ``None`` at first. Every process calls this."""
        state = None
        if self._torch.rank == 0 or not self._torch.is_group:
            try:
                file = open(self.path / "state", "rb")
            except FileNotFoundError:
                file = None
            if file is not None:
                with file:
                    if self._torch.torch is not None:
                        state = self._torch.torch.load(file, map_location="cpu", weights_only=True)
                    else:
                        # The folder is this user's alone.
                        state = pickle.load(file)
        return self._torch.broadcast(state)


class _Processes:
    """The processes of this program, and PyTorch's group of them, if there is one."""

    def __init__(self) -> None:
        self.torch: Any = sys.modules.get("torch")
        # When the driver is asked again, and what it said last.
        self._ask_at = 0.0
        self._utilisation: float | None = None
        dist = sys.modules.get("torch.distributed")
        self.is_group = dist is not None and dist.is_available() and dist.is_initialized()
        self.dist: Any = dist if self.is_group else None
        if self.dist is not None:
            self.rank, self.processes = self.dist.get_rank(), self.dist.get_world_size()
        else:
            self.rank = _environment("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", usual=0)
            self.processes = _environment("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", usual=1)

    def utilisation(self) -> float | None:
        """The part of the last moment that this process's GPU was busy, asked for once a second; ``None`` where there is none, or NVML's
        package for Python is absent.
        """
        now = time.monotonic()
        if self.torch is not None and now >= self._ask_at and self.torch.cuda.is_available():
            self._ask_at = now + 1.0
            try:
                self._utilisation = self.torch.cuda.utilization() / 100
            except Exception:  # noqa: BLE001: a figure that cannot be had stops no training.
                self._utilisation = None
        return self._utilisation

    def barrier(self) -> None:
        if self.dist is not None:
            self.dist.barrier()

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value."""
        if self.dist is None:
            return value
        box = [value]
        self.dist.broadcast_object_list(box, src=0)
        return box[0]

    def _device(self) -> Any:
        """Where the group can send from."""
        on_gpu = "nccl" in self.dist.get_backend()
        return self.torch.device("cuda", self.torch.cuda.current_device()) if on_gpu else self.torch.device("cpu")

    def share(self, tensors: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        """Rank 0's tensors in every process."""
        if self.dist is None or self.processes == 1:
            return tensors
        device = self._device()
        shared = {}
        for name, shape in shapes.items():
            sent = tensors[name].to(device) if self.rank == 0 else self.torch.empty(shape, device=device)
            self.dist.broadcast(sent, src=0)
            shared[name] = sent.cpu()
        return shared

    def gather(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Every tensor at rank 0, whole; nothing elsewhere."""
        if self.dist is None or self.processes == 1:
            return {name: _whole(value) for name, value in state.items()}
        names: list[Any] = [None] * self.processes
        self.dist.all_gather_object(names, list(state))
        owner: dict[str, int] = {}
        for rank, held in enumerate(names):
            for name in held:
                owner.setdefault(name, rank)
        kept = {}
        for name, value in state.items():
            # Every process that holds a part takes part, in the same order; one that need not send it forgets it at once.
            whole = _whole(value)
            if owner[name] == self.rank:
                kept[name] = whole
        device = self._device()
        for name, rank in owner.items():
            if rank == 0:
                continue
            if self.rank == rank:
                self.dist.send_object_list([(tuple(kept[name].shape), str(kept[name].dtype))], dst=0)
                self.dist.send(kept.pop(name).to(device).contiguous(), dst=0)
            elif self.rank == 0:
                about: list[Any] = [None]
                self.dist.recv_object_list(about, src=rank)
                shape, dtype = about[0]
                received = self.torch.empty(shape, dtype=getattr(self.torch, dtype.removeprefix("torch.")), device=device)
                self.dist.recv(received, src=rank)
                kept[name] = received.cpu()
        return kept if self.rank == 0 else {}


def _leave_group() -> None:
    """Ends PyTorch's group at the end of a program whose job is done, unless the program has.

    While the interpreter ends, a thread of a group that still exists may take its lock, which aborts the process: pytorch/pytorch#190489.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_initialized():
        dist.destroy_process_group()


def _current(within: pathlib.Path) -> str | None:
    """The name of the job that waits for a result."""
    try:
        return (within / "current").read_text(encoding="utf-8")
    except OSError:
        # There is none, or on a disk of several machines, it has just been replaced.
        return None


def _is_waiting(within: pathlib.Path, name: str) -> bool:
    folder = within / name
    is_answered = any((folder / answer).exists() for answer in ("result.json", "refused"))
    return _current(within) == name and not is_answered and (folder / "job.json").exists()


def _next_job(within: pathlib.Path, until: float) -> dict[str, Any] | None:
    """What a job that waits for a result says, or ``None`` if there is none until then."""
    while True:
        name = _current(within)
        if name is not None and _is_waiting(within, name):
            try:
                return _read_job(within / name)
            except JobError:
                # It may be withdrawn at any time.
                if (within / name / "job.json").exists():
                    raise
        if time.monotonic() >= until:
            return None
        time.sleep(_LOOK)


def _environment(*names: str, usual: int) -> int:
    return int(next((os.environ[name] for name in names if os.environ.get(name, "").isdigit()), usual))


def _read_job(folder: pathlib.Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((folder / "job.json").read_bytes())
    except (OSError, ValueError) as error:
        raise JobError(f"{folder} holds no job: {error}") from None
    if about.get("schema") != 1:
        raise JobError(f"{folder}/job.json has schema {about.get('schema')}; this file knows 1: take the one of the participant's release")
    return {**about, "folder": str(folder)}


def _read_tensors(path: pathlib.Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The tensors of a safetensors file. Their memory is the file's own until they are changed, and the file never changes."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    try:
        with open(path, "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        (length,) = struct.unpack_from("<Q", memory)
        places = json.loads(memory[8 : 8 + length])
    except (OSError, ValueError, struct.error) as error:
        raise JobError(f"{path} holds no model: {error}") from None
    tensors: dict[str, Any] = {}
    for name, shape in shapes.items():
        if places[name]["dtype"] != "F32":
            raise JobError(f"{path} holds {name} as {places[name]['dtype']}; a job's model is F32")
        begin, end = (8 + length + offset for offset in places[name]["data_offsets"])
        count = (end - begin) // 4
        if torch is not None:
            flat = torch.frombuffer(memory, dtype=torch.float32, count=count, offset=begin) if count else torch.zeros(0)
            tensors[name] = flat.reshape(shape)
        elif numpy is not None:
            tensors[name] = numpy.frombuffer(memory, dtype="<f4", count=count, offset=begin).reshape(shape)
        else:
            tensors[name] = array.array("f", memory[begin:end])
    return tensors


def _state_of(model: Any, names: Container[str]) -> dict[str, Any]:
    """The tensors of a model, by their names in a job that has these."""
    state = model.state_dict() if hasattr(model, "state_dict") else model
    if not isinstance(state, Mapping):
        raise JobError(f"a model is a module, or its tensors by name, and no {type(model).__name__}")
    tensors: dict[str, Any] = {}
    for given, value in state.items():
        name = _job_name(given, names)
        # What a layer keeps beside its tensors (`get_extra_state`) is anything, and no tensor.
        if name not in names and name.rpartition(".")[2] == "_extra_state":
            continue
        if name in tensors:
            raise JobError(f"the model has {name} twice, once as {given}: give done its tensors by the job's names")
        tensors[name] = value
    return tensors


def _job_name(given: str, names: Container[str]) -> str:
    """A tensor's name without what wrappers put into it. A layer of the model's own may be called as they are."""
    name = given
    while name not in names and (wrapper := _WRAPPERS.search(name)):
        name = name[: wrapper.start()] + name[wrapper.end() :]
    return name


def _whole(value: Any) -> Any:
    """All of a tensor that is sharded over processes; others as they are."""
    value = value.detach() if hasattr(value, "detach") else value
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _on_host(value: Any) -> Any:
    """A tensor of PyTorch as NumPy takes it: whole, on the host, and floats in 32 bits, since NumPy has no bfloat16; others as they are."""
    value, torch = _whole(value), sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    return value.to(device="cpu", dtype=torch.float32 if value.is_floating_point() else value.dtype)


def _is_counter(value: Any) -> bool:
    """Whether a tensor holds whole numbers, such as the number of batches that a layer has seen, which most tasks' models leave out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def _safetensors(tensors: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Iterable[bytes]:
    """The bytes of a file with these tensors as F32, in pieces; it holds exactly what the job names."""
    found = {name for name, value in tensors.items() if name in shapes or not _is_counter(value)}
    if found != set(shapes):
        missing, extra = sorted(set(shapes) - found), sorted(found - set(shapes))
        raise JobError(f"the model has other tensors than the job: it lacks {missing}, and the job does not have its {extra}")
    header: dict[str, Any] = {}
    at = 0
    for name, shape in shapes.items():
        end = at + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name, shape in shapes.items():
        yield _floats(name, tensors[name], shape)


def _floats(name: str, value: Any, shape: tuple[int, ...]) -> bytes:
    """Little-endian 32-bit floats of a tensor, an array or plain numbers, row by row."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    given = tuple(value.shape) if hasattr(value, "shape") else None
    if given is not None and given != shape:
        raise JobError(f"{name} has shape {list(given)}; the job says {list(shape)}")
    if torch is not None and isinstance(value, torch.Tensor):
        value = _on_host(value).to(dtype=torch.float32).contiguous().reshape(-1)
        value = value.tolist() if numpy is None else value.numpy()
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        raw: bytes = numpy.ascontiguousarray(value, dtype="<f4").tobytes()
    else:
        try:
            numbers = array.array("f", _flat(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise JobError(f"{name} has what is no number: {error}") from None
        if sys.byteorder == "big":
            numbers.byteswap()
        raw = numbers.tobytes()
    if len(raw) != 4 * math.prod(shape):
        raise JobError(f"{name} has {len(raw) // 4} numbers; shape {list(shape)} has {math.prod(shape)}")
    return raw


def _flat(value: Any) -> Iterable[float]:
    """The numbers of nested lists."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        yield float(value)
        return
    for item in value:
        yield from _flat(item)


def _number(value: Any) -> Any:
    """A plain number of what may be a tensor with one; NaN and infinity are not told."""
    if value is None or isinstance(value, (str, bool)):
        return value
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _metric(name: str, value: Any) -> Any:
    try:
        mean, count = value if isinstance(value, tuple) else (value, None)
        mean = float(mean.item() if hasattr(mean, "item") else mean)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise JobError(f"the metric {name} is {value!r}, and no number: {error}") from None
    if not math.isfinite(mean):
        raise JobError(f"the metric {name} is {mean}")
    return mean if count is None else {"value": mean, "count": _counted(f"the count of the metric {name}", count)}


def _counted(what: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise JobError(f"{what} is {value!r}: {error}") from None


def _write(folder: pathlib.Path, name: str, pieces: Iterable[bytes]) -> None:
    """Whole or not at all."""
    draft = folder / f"{name}.{os.getpid()}"
    with open(draft, "wb") as file:
        for piece in pieces:
            file.write(piece)
    os.replace(draft, folder / name)
