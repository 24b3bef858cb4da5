"""A module of PyTorch as a model that tasks carry: exported to ONNX, imported as a graph, and compared with the module.

PyTorch's exporter merges parameters that are equal, and may rename, transpose or reorder others. So the export has values of its own,
distinct in every parameter, and each tensor of the graph must be found again by name and value.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._tributary import ConfigurationError, ModelError
from .graph import GraphModel, Loss, imported, options
from .inputs import feed

if TYPE_CHECKING:
    import numpy as np

#: Largest differences between the graph and PyTorch, relative to the largest number of an output or of a gradient.
_OUTPUT, _GRADIENT = 1e-5, 1e-4
#: Distance of the exported values from the module's, as a share of a parameter's largest.
_SHIFT = 0.05
#: Seed of these distances, and of the weights of outputs.
_SEED = 1
#: Buffers of a batch normalization that training moves.
_STATISTICS = ("running_mean", "running_var")


def task_from(
    module: Any, example: Any, *, loss: Loss = "cross_entropy", length: Mapping[str, int] | None = None, batch_norm: str = "frozen"
) -> GraphModel:
    """A ``torch.nn.Module`` as a model that devices train without PyTorch. Outputs and gradients of the graph are compared with the
    module's on ``example``. The module comes out as it was.

    The first output trains, by ``loss``. Parameters without ``requires_grad``, buffers and running statistics of frozen batch
    normalizations are constants: they stay as they are. Dropout is left out. :attr:`GraphModel.warnings` names both.

    :param module: its parameters are 32-bit floats, and its output does not mix examples.
    :param example: a tensor, a tuple of tensors, or tensors by the names of ``forward``'s arguments, with examples as first axis.
    :param loss: ``cross_entropy``, ``next_token``, ``bce_with_logits``, ``mse``, ``huber`` or ``poisson``, or a mapping with its settings.
    :param length: by input, the axis whose size is the length of sequences and differs between devices: ``{"tokens": 1}``. Otherwise
        the sizes of the example are fixed, but for the first axis.
    :param batch_norm: ``frozen`` normalizes by running statistics. ``local`` and ``averaged`` normalize by the batch, as PyTorch in
        ``train()``; running statistics are tensors that stay on devices, or are averaged. Gradients are compared in that mode.
    :raises ModelError: if the module cannot be exported, a node cannot train, a parameter gets lost, or outputs or gradients differ.
    :raises ConfigurationError: if PyTorch, onnx or onnxscript is missing, or the example is none.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise ConfigurationError(f"a {type(module).__name__} is no torch.nn.Module")
    chosen = options(batch_norm=batch_norm)
    norms = _norms(torch, module) if chosen["batch_statistics"] else {}
    call = _example(torch, module, example, 2 if norms else 1)
    trained, fixed = _parts(torch, module)
    axes = _axes(call, length or {})
    statistics = {f"{name}.{kind}".lstrip("."): getattr(part, kind) for name, part in norms.items() for kind in _STATISTICS}
    tensors, fixed = {**trained, **statistics}, [name for name in fixed if name not in statistics]
    with _evaluated(module):
        true = {name: value.detach().clone() for name, value in tensors.items()}
        try:
            _shift(torch, trained, statistics)
            model = _imported(module, call, axes, loss, (tensors, fixed), batch_norm)
            _compare(torch, module, call, model, trained, norms)
        finally:
            with torch.no_grad():
                for name, value in tensors.items():
                    value.copy_(true[name])
        model.tensors = {name: _array(tensors[name]) for name in model.tensors}
        _compare(torch, module, call, model, trained, norms)
    model.warnings += _notes(torch, module, norms)
    return model


def _torch() -> Any:
    """PyTorch, if it can export."""
    missing = [name for name in ("torch", "onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"task_from needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    import torch

    return torch


def _norms(torch: Any, module: Any) -> dict[str, Any]:
    """The batch normalizations with running statistics, by name."""
    parts = dict(module.named_modules())
    found = {name: part for name, part in parts.items() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)}
    found = {name: part for name, part in found.items() if part.running_mean is not None}
    if not found:
        raise ModelError("the module has no batch normalization with running statistics: leave batch_norm out")
    for name, part in found.items():
        if part.momentum is None:
            raise ModelError(f"{name!r} has momentum=None, a mean over all batches; give it a momentum, for example 0.1")
    return found


def _example(torch: Any, module: Any, given: Any, least: int) -> dict[str, Any]:
    """Tensors by the names of ``forward``'s arguments, with two examples or more: the exporter takes a batch of one for a fixed size."""
    args = given if isinstance(given, tuple) else () if isinstance(given, Mapping) else (given,)
    try:
        bound = inspect.signature(module.forward).bind(*args, **(given if isinstance(given, Mapping) else {}))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the example does not fit {type(module).__name__}.forward: {error}") from error
    call = dict(bound.arguments)
    for name, value in call.items():
        if not isinstance(value, torch.Tensor):
            raise ConfigurationError(f"the example's {name!r} is a {type(value).__name__}; it must be a tensor")
        if value.dtype not in (torch.float32, torch.int64, torch.int32):
            raise ConfigurationError(f"the example's {name!r} is of {value.dtype}; it must be of float32, int64 or int32")
    counts = {name: value.shape[0] if value.dim() else 0 for name, value in call.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise ConfigurationError(f"the example's tensors need the examples as first axis, equally many and at least one: {counts}")
    if min(counts.values()) < least:
        raise ConfigurationError(f"batch normalization by the batch needs an example of {least} rows or more")
    return {name: torch.cat([value, value]) if counts[name] == 1 else value for name, value in call.items()}


def _axes(call: Mapping[str, Any], length: Mapping[str, int]) -> dict[str, int]:
    """The axis of each input whose size is the length.

    :raises ConfigurationError: if there is no such input or axis.
    """
    for name, axis in length.items():
        if name not in call or not isinstance(axis, int) or not 1 <= axis < call[name].dim():
            shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in call.items())
            raise ConfigurationError(f"length has {name!r}: {axis!r}; it names an axis from 1 on of an input of the example: {shapes}")
    return dict(length)


def _parts(torch: Any, module: Any) -> tuple[dict[str, Any], list[str]]:
    """The parameters that train, and the names of everything else: buffers, and parameters that do not."""
    named = dict(module.named_parameters())
    trained = {name: value for name, value in named.items() if value.requires_grad}
    if not trained:
        raise ModelError("the module has no parameter that trains")
    for name, value in trained.items():
        if value.dtype != torch.float32:
            raise ModelError(f"parameter {name!r} is of {value.dtype}; it must be of float32: use module.float()")
        if not bool(torch.isfinite(value).all()):
            raise ModelError(f"parameter {name!r} has a value that is not finite")
    return trained, [*(name for name in named if name not in trained), *(name for name, _ in module.named_buffers())]


@contextlib.contextmanager
def _evaluated(module: Any) -> Iterator[None]:
    """The module in evaluation, and each part of it as before afterwards."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def _shift(torch: Any, trained: Mapping[str, Any], statistics: Mapping[str, Any]) -> None:
    """Distinct values near the true ones; variances stay positive."""
    draws = torch.Generator().manual_seed(_SEED)
    with torch.no_grad():
        for name, value in [*trained.items(), *statistics.items()]:
            noise = _SHIFT * torch.empty(value.shape).uniform_(-1, 1, generator=draws).to(value.device)
            largest = float(value.abs().max()) if value.numel() else 0.0
            value.add_(noise * (value if name in statistics and name.endswith("running_var") else largest or 1.0))


def _imported(
    module: Any, call: Mapping[str, Any], axes: Mapping[str, int], loss: Loss, parts: tuple[dict[str, Any], list[str]], batch_norm: str
) -> GraphModel:
    """The graph, whose tensors are the module's by name and value."""
    trained, fixed = parts
    aliases = _aliases(module)
    given = {
        "tied": [*trained, *aliases],
        "names": aliases,
        "constants": [*fixed, *(name for name, own in aliases.items() if own in fixed)],
        "parameters": [*(name for name, value in trained.items() if value.requires_grad), *aliases],
        "batch_norm": batch_norm,
    }
    file = _exported(module, call, axes)
    model = imported(file, loss, options(**given), check=False)
    # Tensors that are attributes of the module, and no buffers.
    others = [name for name in model.tensors if name not in trained]
    if others:
        model = imported(file, loss, options(**{**given, "constants": [*given["constants"], *others]}), check=False)
    missing = [name for name in trained if name not in model.tensors]
    if missing:
        raise ModelError(
            f"the graph lacks the parameters {', '.join(map(repr, missing))}: the output does not depend on them, or the exporter renamed "
            f"them; use `requires_grad_(False)` for those that do not train. Of the file: {', '.join(map(repr, others)) or 'nothing else'}"
        )
    for name, array in model.tensors.items():
        if array.shape != tuple(trained[name].shape) or (array != _array(trained[name])).any():
            raise ModelError(f"the exporter changed the parameter {name!r}: it has other values or another shape in the file")
    return model


def _aliases(module: Any) -> dict[str, str]:
    """Further names of parameters that several parts of the module share, with their first names."""
    first: dict[int, str] = {}
    found = {}
    for name, value in module.named_parameters(remove_duplicate=False):
        own = first.setdefault(id(value), name)
        if own != name:
            found[name] = own
    return found


def _exported(module: Any, call: Mapping[str, Any], axes: Mapping[str, int]) -> bytes:
    """The module as an ONNX file, with the batch as a symbol."""
    import torch

    batch = torch.export.Dim("batch")
    shapes: dict[str, dict[int, Any]] = {name: {0: batch} for name in call}
    if axes:
        positions = torch.export.Dim("length")
        for name, axis in axes.items():
            shapes[name][axis] = positions
    log = logging.getLogger("torch.onnx")
    level = log.level
    try:
        log.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                module, (), kwargs=dict(call), dynamo=True, optimize=False, dynamic_shapes=shapes, external_data=False, verbose=False
            )
        return bytes(program.model_proto.SerializeToString())
    except Exception as error:  # The exporter raises whatever its passes raise.
        raise ModelError(f"PyTorch cannot export the module: {error.__cause__ or error}") from error
    finally:
        log.setLevel(level)


def _compare(
    torch: Any, module: Any, call: Mapping[str, Any], model: GraphModel, trained: Mapping[str, Any], norms: Mapping[str, Any]
) -> None:
    """Compares output and gradients of the graph, which has the module's present values, with those of PyTorch. ``norms`` normalize by the
    batch for the gradients.

    :raises ModelError: if they differ.
    """
    output = _first(torch, module(**call))
    expected = _array(output)
    fed = feed(model.inputs, {name: _array(value) for name, value in call.items()})
    flat = model._flat()
    found = model._output(flat, fed)
    if found.shape != expected.shape:
        raise ModelError(f"the graph's output has the shape {found.shape}, and the module's {expected.shape}")
    _check("output", found, expected, _OUTPUT, 0.0)
    weights = torch.empty(output.shape).uniform_(-1, 1, generator=torch.Generator().manual_seed(_SEED))
    with _by_batch(torch, norms):
        output = _first(torch, module(**call)) if norms else output
        total = (output * weights.to(output.device)).sum()
        given = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    gradients = {name: _array(torch.zeros_like(trained[name]) if value is None else value) for name, value in zip(trained, given)}
    # Running statistics have no gradient.
    gradients.update({name: 0.0 * value for name, value in model.tensors.items() if name not in trained})
    largest = max(float(abs(value).max(initial=0.0)) for value in gradients.values())
    for name, own in model._gradient(flat, fed, _array(weights)).items():
        # A gradient of zero has the rounding of the sums that it is the rest of.
        _check(f"gradient of {name!r}", own, gradients[name], _GRADIENT, 0.01 * largest)


@contextlib.contextmanager
def _by_batch(torch: Any, norms: Mapping[str, Any]) -> Iterator[None]:
    """Batch normalizations in training, and their buffers as before afterwards."""
    before = [(value, value.clone()) for part in norms.values() for value in part.buffers(recurse=False)]
    for part in norms.values():
        part.training = True
    try:
        yield
    finally:
        for part in norms.values():
            part.training = False
        with torch.no_grad():
            for value, old in before:
                value.copy_(old)


def _check(what: str, found: np.ndarray, expected: np.ndarray, most: float, least: float) -> None:
    scale = max(float(abs(expected).max(initial=0.0)), least, 1e-3)
    difference = float(abs(found - expected).max(initial=0.0)) / scale
    if not difference <= most:
        raise ModelError(f"the {what} of the graph differs from PyTorch's by {difference:.1e} of its largest value; {most:.0e} is allowed")


def _first(torch: Any, output: Any) -> Any:
    """The first tensor of what a module returns."""
    while not isinstance(output, torch.Tensor):
        parts = list(output.values()) if isinstance(output, Mapping) else output
        if not isinstance(parts, (list, tuple)) or not parts:
            raise ModelError(f"the module returns a {type(output).__name__}; it must return a tensor first")
        output = parts[0]
    return output


def _notes(torch: Any, module: Any, norms: Mapping[str, Any]) -> list[str]:
    """What trains otherwise than in PyTorch."""
    said = []
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and name not in norms:
            said.append(f"{name!r} uses its running statistics, which do not change in training; its scale and bias train")
        # Of a dropout the probability is `p`; attention and recurrent layers have it as `dropout`.
        rate = getattr(part, "p", 0.0) if isinstance(part, torch.nn.modules.dropout._DropoutNd) else getattr(part, "dropout", 0.0)
        if isinstance(rate, float) and rate > 0:
            said.append(f"the dropout of {name!r} is left out")
    return said


def _array(value: Any) -> np.ndarray:
    """A copy of a tensor as an array."""
    return value.detach().cpu().numpy().copy()
