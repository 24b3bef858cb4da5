"""The operator's side: create tasks, follow rounds, fetch models. Needs nothing but the standard library and NumPy."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from ._tributary import ConfigurationError, Error, complete_task, forward_proxy
from . import initial
from .graph import GraphModel
from .settings import pem
from .task_file import beside, task_file, with_graph, with_settings

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

#: States of a task in which no round follows by itself.
_OVER = {"COMPLETED", "CANCELLED", "BUDGET_EXHAUSTED"}
#: Milliseconds that a request for a change waits at the coordinator.
_WAIT_MS = 20_000


class Problem(Error):
    """What the coordinator answers when it does not do what it was asked (RFC 9457)."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        #: The HTTP status.
        self.status = status
        #: ``urn:tributary:problem:…``; the same in every release.
        self.type: str = body.get("type", "about:blank")
        #: The whole answer; ``errors`` has one entry for each wrong field of a task.
        self.body = dict(body)
        said = body.get("detail") or body.get("title") or f"the coordinator answered {status}"
        wrong = [f"{error.get('field', '?')}: {error.get('detail', '')}" for error in body.get("errors", [])]
        super().__init__("\n".join([said, *wrong]))


class Operator:
    """A client of the REST API, with an operator's token.

    ``docs/API.md`` describes the answers; they are the JSON of the API as Python has it.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        ca: str | os.PathLike[str] | None = None,
        proxy: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        """``url`` is the coordinator's address, ``https://host:port``, and ``ca``, PEM or a file, the authority of its certificate. Without
        ``url``, ``TRIBUTARY_SERVER`` counts. Without ``ca``, ``TRIBUTARY_CA`` counts, and then what the system believes in.

        ``proxy`` is the HTTP proxy that leads to the coordinator, ``http://[USER:PASSWORD@]HOST[:PORT]``, or ``none``; by default that of
        the environment (``HTTPS_PROXY``). Hosts in ``NO_PROXY`` are reached directly.

        Without ``token``, ``TRIBUTARY_TOKEN`` counts.
        """
        import ssl  # Slow to import, as are the modules below, and participants need none of them.

        url = os.environ.get("TRIBUTARY_SERVER") if url is None else url
        if url is None:
            raise ConfigurationError("an operator needs the address of a coordinator: give one, or set TRIBUTARY_SERVER")
        if not isinstance(url, str) or not url.startswith("https://"):
            raise ConfigurationError(f"{url!r} is no address of a coordinator; it begins with https://")
        token = token or os.environ.get("TRIBUTARY_TOKEN")
        if not token:
            raise ConfigurationError("an operator needs a token: give one, or set TRIBUTARY_TOKEN")
        self._url, self._token, self._timeout = url.rstrip("/"), token, timeout
        self._proxy = forward_proxy(f"https://{urllib.parse.urlsplit(url).netloc}", proxy)
        try:
            self._tls = ssl.create_default_context(cadata=pem("ca", ca or os.environ.get("TRIBUTARY_CA")))
        except ssl.SSLError as error:
            raise ConfigurationError(f"the authority of the coordinator cannot be used: {error}") from error

    def request(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, **query: Any
    ) -> Any:
        """Any route: its JSON, or its bytes if it is something else.

        :raises Problem: if the coordinator refuses.
        :raises Error: if it cannot be reached, or ``body`` cannot be sent as JSON.
        """
        asked = {name: value for name, value in query.items() if value is not None}
        if asked:
            path = f"{path}?{urllib.parse.urlencode(asked, doseq=True)}"
        sent = None if body is None else _as_json(body).encode()
        return self._send(method, path, sent, "application/json", headers)

    def _send(
        self, method: str, path: str, sent: bytes | None, media: str, headers: Mapping[str, str] | None = None
    ) -> Any:
        import http.client
        import urllib.request
        from urllib.error import HTTPError

        request = urllib.request.Request(f"{self._url}{path}", data=sent, method=method, headers=dict(headers or {}))
        request.add_header("Authorization", f"Bearer {self._token}")
        if sent is not None:
            request.add_header("Content-Type", media)
        try:
            with self._opener().open(request, timeout=self._timeout) as answer:
                kind, said = answer.headers.get_content_type(), answer.read()
        except HTTPError as error:
            with error:
                raise Problem(error.code, _json(error.read())) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Error(f"{self._url} cannot be reached: {getattr(error, 'reason', error)}") from error
        if kind != "application/json":
            return said
        try:
            return json.loads(said)
        except ValueError as error:
            raise Error(f"{self._url} answered with what is no JSON: {error}") from error

    def _opener(self) -> Any:
        import urllib.request

        from .tunnel import Tunnels

        handler = Tunnels(self._tls, self._proxy) if self._proxy else urllib.request.HTTPSHandler(context=self._tls)
        # Without reading the environment again.
        return urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)

    def items(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """The items of any list, page by page."""
        cursor = None
        while True:
            page = self.request("GET", path, cursor=cursor, limit=500, **query)
            yield from page["items"]
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def create(
        self,
        spec: Mapping[str, Any] | str | os.PathLike[str],
        *,
        model: Any = None,
        set: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Creates a task from a mapping as in a task file, from the file itself (TOML, or JSON), or from the name of a preset
        (:meth:`presets`). Tensors follow from the model's architecture, and sizes from its table, as with ``tributary task create``.

        ``set`` overrides keys, as in ``{"rounds.count": 20}``. A task of a preset is named as the preset, unless ``set`` names it.

        ``model`` is what the task starts from: a ``torch.nn.Module``, arrays by name or nested as JAX has them, or the path of a
        safetensors file. It takes the place of ``initial`` in ``[model]``. A task without an architecture has its tensors.
        A :class:`tributary.GraphModel` is the architecture, too: devices train it without code of their own.
        With shared adapters (``lora``) the model is their frozen base. The task names its digest, and each device brings the file
        (``base_model`` of :func:`tributary.participant`), for example the one that :meth:`tributary.GraphModel.save` wrote.

        ``key`` makes a repetition return the first answer; one is made up otherwise.

        :raises ConfigurationError: if a file cannot be read, ``model`` is no model, or the model's architecture cannot be completed.
        :raises Error: if ``spec`` cannot be sent as JSON.
        """
        import uuid

        given = with_graph(with_settings(self._source(spec), set or {}), spec)
        self._start_from(given, beside(given, spec) if model is None else model)
        body = {"spec": json.loads(complete_task(_as_json(given)))}
        return self.request("POST", "/v1/tasks", body, headers={"Idempotency-Key": key or str(uuid.uuid4())})

    def presets(self) -> dict[str, dict[str, Any]]:
        """The coordinator's built-in tasks by name, without a model: ``private``, ``robust`` and others."""
        return {preset["name"]: preset["spec"] for preset in self.items("/v1/presets")}

    def _source(self, spec: Mapping[str, Any] | str | os.PathLike[str]) -> Mapping[str, Any]:
        """A task as given, of a file or of a preset.

        :raises ConfigurationError: if there is no such file or preset.
        """
        if isinstance(spec, Mapping):
            return spec
        if not isinstance(spec, str) or os.path.exists(spec) or os.path.basename(spec) != spec or "." in spec:
            return task_file(spec)
        presets = self.presets()
        if spec not in presets:
            raise ConfigurationError(f"there is neither a file nor a preset {spec!r}; presets are {', '.join(presets)}")
        return {"name": spec, **presets[spec]}

    def _start_from(self, spec: dict[str, Any], model: Any) -> None:
        """Uploads the model that a task starts from, if any, and names it in the task. Names the base of shared adapters by digest."""
        if model is None:
            return
        file = initial.model_file(model)
        about = dict(spec.get("model") or {})
        if isinstance(model, GraphModel):
            if about.get("architecture"):
                raise ConfigurationError("the task has an architecture, and `model` brings another: leave one of them out")
            about["architecture"] = model.architecture
            if model.batch_norm != "frozen":
                about.setdefault("batch_norm", model.batch_norm)
        if not about.get("architecture") and not about.get("tensors"):
            about["tensors"] = initial.tensors(file)
        spec["model"] = about
        how = spec.get("personalization")
        if isinstance(how, Mapping) and how.get("adapters") == "shared":
            spec["personalization"] = {"base_sha256": hashlib.sha256(file).hexdigest(), **how}
            about.pop("initial", None)
            return
        about["initial"] = initial.upload(
            file,
            lambda path, body: self.request("PUT", path, body),
            lambda path, part: self._send("PUT", path, part, "application/octet-stream"),
        )

    def tasks(self, **query: Any) -> list[dict[str, Any]]:
        """All tasks, newest first; ``state="ACTIVE"`` narrows down."""
        return list(self.items("/v1/tasks", **query))

    def task(self, name: str) -> dict[str, Any]:
        """One task, by name or id."""
        return self.request("GET", f"/v1/tasks/{_part(name)}")

    def pause(self, task: str) -> dict[str, Any]:
        """Opens no further round until :meth:`resume`; returns the task."""
        return self.request("POST", f"/v1/tasks/{_part(task)}/pause")

    def resume(self, task: str) -> dict[str, Any]:
        """Ends a pause; returns the task."""
        return self.request("POST", f"/v1/tasks/{_part(task)}/resume")

    def promote(self, task: str, version: int) -> dict[str, Any]:
        """Marks a model version as the one to use (:meth:`model` with ``promoted``); returns the task."""
        return self.request("POST", f"/v1/tasks/{_part(task)}/models/{int(version)}/promote")

    def privacy(self, task: str) -> dict[str, Any]:
        """The ledger of a task with ``[privacy]``: its budget and what each release has spent."""
        return self.request("GET", f"/v1/tasks/{_part(task)}/privacy")

    def rounds(self, task: str, **query: Any) -> list[dict[str, Any]]:
        """The latest attempt at each round of a task, oldest first."""
        return list(self.items(f"/v1/tasks/{_part(task)}/rounds", **query))[::-1]

    def frame(self, task: str) -> pd.DataFrame:
        """The rounds as a pandas data frame: a row for each, indexed by its number, with times in UTC.

        A metric is a column ``metrics.NAME.value``, as in ``tributary export``.
        """
        return _frame(self.rounds(task))

    def plot(self, task: str, *, metric: str | None = None, ax: Any = None) -> Any:
        """Draws a metric by round with matplotlib; returns the axes. Without ``metric`` it is a loss if there is one, otherwise the first metric.

        :raises Error: if no round has the metric.
        """
        import matplotlib.pyplot as plt

        rounds = self.rounds(task)
        found = list(dict.fromkeys(name for round in rounds for name in round.get("metrics") or {}))
        if metric is None:
            losses = [name for name in found if "loss" in name]
            metric = next((name for name in ("train_loss", "loss", *losses, *found) if name in found), None)
        if metric is None:
            raise Error(f"no round of {task} has a metric; name metrics in the task, and wait for a round")
        points = [(round["number"], round["metrics"][metric]["value"]) for round in rounds if metric in (round.get("metrics") or {})]
        if not points:
            raise Error(f"no round of {task} has the metric {metric!r}; there are {', '.join(found) or 'none'}")
        ax = ax or plt.gca()
        ax.plot(*zip(*points), marker="o")
        ax.set(xlabel="round", ylabel=metric, title=task)
        return ax

    @overload
    def watch(self, task: str, *, frame: Literal[False] = False) -> Iterator[dict[str, Any]]: ...
    @overload
    def watch(self, task: str, *, frame: Literal[True]) -> Iterator[pd.DataFrame]: ...
    def watch(self, task: str, *, frame: bool = False) -> Iterator[Any]:
        """Each round that has an end from now on, as soon as it has, until the task is over.

        With ``frame``, all rounds so far as :meth:`frame` has them, each time that another has ended: the last row may be a round that goes on.
        """
        looks = self._looks(task, {(round["number"], round["attempt"]) for round in self.rounds(task) if _has_ended(round)})
        if frame:
            return (_frame(rounds) for rounds, _ in looks)
        return (round for _, ended in looks for round in ended)

    def _looks(self, task: str, seen: set[tuple[int, int]]) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
        """All rounds, and those of them that have ended and are not in ``seen``, each time that there are such, until the task is over."""
        while True:
            # Looked up before the rounds: none that ended before the task did is missed.
            is_over = self.task(task)["status"] in _OVER
            rounds = self.rounds(task)
            ended = [round for round in rounds if _has_ended(round) and (round["number"], round["attempt"]) not in seen]
            seen.update((round["number"], round["attempt"]) for round in ended)
            if ended:
                yield rounds, ended
            if is_over:
                return
            self._wait(task)

    def wait(self, task: str) -> dict[str, Any]:
        """Waits until the task is over; returns it."""
        for _ in self.watch(task):
            pass
        return self.task(task)

    def model(self, task: str, version: int | None = None, *, promoted: bool = False) -> dict[str, np.ndarray]:
        """A published model: an array for each tensor, by name. By default the newest version."""
        if version is None:
            said = self.task(task)
            version = said.get("promoted_version") if promoted else said["model_version"]
            if version is None:
                raise Error(f"no version of {task} was promoted")
        return _safetensors(self._version(task, version))

    def result(self, task: str, version: int | None = None) -> dict[str, Any]:
        """What an analysis has found so far, or by a version; after its last round, all of it (docs/ANALYTICS.md)."""
        if version is None:
            version = self.task(task)["model_version"]
        try:
            ((_, state),) = json.loads(self._version(task, version)).items()
            return dict(state)
        except (AttributeError, TypeError, ValueError) as error:
            raise Error(f"version {version} of {task} is not that of an analysis: {error!r}") from error

    def _version(self, task: str, version: int) -> bytes:
        """The file of a version."""
        return self.request("GET", f"/v1/tasks/{_part(task)}/models/{int(version)}/parameters")

    def enroll(self, name: str | None = None) -> str:
        """A one-time token for one participant, to be given to :func:`tributary.participant`."""
        return self.request("POST", "/v1/enrollment-tokens", {} if name is None else {"name": name})["token"]

    def _wait(self, task: str) -> None:
        """Returns once the present round has changed, or after a while."""
        newest = self.request("GET", f"/v1/tasks/{_part(task)}/rounds", limit=1)["items"]
        if not newest or _has_ended(newest[0]):
            number = newest[0]["number"] + 1 if newest else 1
            ask = {"after_state": None}
        else:
            number, ask = newest[0]["number"], {"after_state": newest[0]["state"]}
        try:
            self.request("GET", f"/v1/tasks/{_part(task)}/rounds/{number}", wait_ms=_WAIT_MS, **ask)
        except Problem as problem:
            # A round that has not opened by then.
            if problem.status != 404:
                raise


def _frame(rounds: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    frame = pd.json_normalize(rounds)
    if frame.empty:
        return frame
    for name in frame.columns:
        if name.endswith("_at"):
            frame[name] = pd.to_datetime(frame[name], unit="ms", utc=True)
    return frame.set_index("number")


def _has_ended(round: Mapping[str, Any]) -> bool:
    return round["state"] in {"COMPLETED", "FAILED", "CANCELLED"}


def _part(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _as_json(body: Any) -> str:
    try:
        return json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Error(f"what is to be sent is no JSON: {error}") from error


def _json(said: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(said)
    except ValueError:
        return {"detail": said[:200].decode("utf-8", "replace")}
    return body if isinstance(body, dict) else {}


def _safetensors(file: bytes) -> dict[str, np.ndarray]:
    """The tensors of a published model, which are all float32 in little endian."""
    import numpy as np

    try:
        length = int.from_bytes(file[:8], "little")
        header = json.loads(file[8 : 8 + length])
        tensors = {}
        for name, about in header.items():
            if name != "__metadata__":
                start, end = (8 + length + offset for offset in about["data_offsets"])
                tensors[name] = np.frombuffer(file[start:end], "<f4").reshape(about["shape"]).copy()
        return tensors
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Error(f"the coordinator answered with what is no model: {error!r}") from error
