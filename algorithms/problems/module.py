"""Any ``torch.nn.Module`` as a learning problem, through ``torch.func``: one flat vector of parameters a client."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from ...errors import InvalidValue
from ...keys import public_key, stream_key
from ..shards import Shards
from .base import Problem
from .labels import check_classes, check_targets
from .models import Factory, build_model
from .quality import r2
from .registry import register

# The most numbers of record gradients held at once (32 MB of float64), and the most records that go through a model
# at once: enough to hide the cost of a call, little beside the shards.
GRADIENT_LIMIT = 1 << 22
RECORD_LIMIT = 1 << 11


@register
@dataclass(frozen=True)
class ModuleProblem(Problem):
    """A module's outputs under cross-entropy (``n_outputs`` ≥ 2, labels 0..k−1) or, with one output s, ½(s − b)².

    The module is never moved or shipped: every process builds it from ``model`` and ``model_options``, and reads the
    parameters ``x`` ``[d]`` in the order of ``named_parameters``, on the device of ``x``. Clients go through it together
    (``vmap``). With ``clip`` each record's own gradient is formed and scaled down first; without, one gradient a batch.

    Nothing bounds the curvature, so ``L = inf``, and ``G = clip`` or inf. The loss is not convex, so (D1) and (D2) hold for
    one local step only (SPEC section 2).

    Attributes:
        model: ``mlp``, ``cnn``, ``package.module:factory``, or a factory itself.
        model_options: keyword arguments of the factory, after ``(n_features, n_outputs)``.
    """

    model: str | Factory = "mlp"
    model_options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    name: ClassVar[str] = "module"
    needs_record_norm: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_outputs < 1:
            raise InvalidValue("problem.kind", self.name, "a model needs at least one output")
        x = torch.zeros(2, self.dim)
        labels = torch.zeros(2, 1, dtype=torch.int64)
        try:
            vmap(grad(self._mean_loss))(x, torch.zeros(2, 1, self.n_features), labels)
        except RuntimeError as error:
            cure = f"torch.func cannot differentiate it: {str(error).splitlines()[0]}"
            raise InvalidValue("problem.model", str(self.model), cure) from None

    def __getstate__(self) -> dict[str, Any]:
        # The fields alone: what is built from them is built again where it is needed.
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    @property
    def has_accuracy(self) -> bool:
        return self.n_outputs > 1

    @property
    def dim(self) -> int:
        return sum(self._layout[1])

    @property
    def gradient_bound(self) -> float:
        return math.inf if self.clip is None else self.clip

    @property
    def smoothness(self) -> float:
        return math.inf

    @property
    def convex_smooth(self) -> bool:
        return False

    @classmethod
    def outputs_for(cls, n_classes: int) -> int:
        return max(n_classes, 1)

    def start(self, seed: int) -> np.ndarray:
        """The module's own initialisation ``[d]``, float64, drawn from the public key of ``seed``."""
        drawn = self._build(stream_key(public_key(seed), "start") & (2**63 - 1))
        return torch.cat([value.detach().flatten() for value in drawn.parameters()]).double().numpy()

    def _check_labels(self, labels: Tensor) -> None:
        if self.n_outputs > 1:
            check_classes(labels, self.n_outputs)
        else:
            check_targets(labels)

    @property
    def clips(self) -> bool:
        return True

    def add_gradient(
        self, out: Tensor, x: Tensor, features: Tensor, labels: Tensor, scale: float | Tensor = 1.0
    ) -> None:
        if self.clip is not None:
            self.add_clipped_gradient(out, x, features, labels, self.clip, scale)
            return
        clients, n = labels.shape
        for rows, records in self._blocks(clients, n, RECORD_LIMIT):
            part = x[rows], features[rows, records], labels[rows, records]
            share = scale[rows] if isinstance(scale, Tensor) else scale
            mean = vmap(grad(self._mean_loss))(*part)
            out[rows].add_(mean * share, alpha=part[2].shape[1] / n)

    def add_clipped_gradient(
        self, out: Tensor, x: Tensor, features: Tensor, labels: Tensor, clip: float, scale: float | Tensor = 1.0
    ) -> None:
        clip = clip if self.clip is None else min(clip, self.clip)
        clients, n = labels.shape
        for rows, records in self._blocks(clients, n, min(RECORD_LIMIT, max(1, GRADIENT_LIMIT // self.dim))):
            part = x[rows], features[rows, records], labels[rows, records]
            share = scale[rows] if isinstance(scale, Tensor) else scale
            out[rows].add_(self._clipped_sum(*part, clip) * share, alpha=1 / n)

    def _clipped_sum(self, x: Tensor, features: Tensor, labels: Tensor, clip: float) -> Tensor:
        """Sum over the records of each client's clipped record gradients, ``[c, d]``."""
        each = vmap(vmap(grad(self._record_loss), in_dims=(None, 0, 0)))(x, features, labels)
        # clip / 0 is inf, which the clamp turns into 1: a zero gradient stays zero.
        factors = torch.linalg.vector_norm(each, dim=-1).reciprocal_().mul_(clip).clamp_(max=1.0)
        return torch.bmm(factors.unsqueeze(1), each).squeeze(1)

    def losses(self, x: Tensor, shards: Shards, slots: Tensor) -> Tensor:
        out = x.new_empty(len(x))
        for where, features, labels in shards.batches(slots):
            out[where] = self.values(x[where], features, labels)
        return out

    def client_losses(self, x: Tensor, shards: Shards) -> Tensor:
        each = self._loss(self._outputs(x, shards.features), shards.labels, "none")
        return torch.segment_reduce(each, "mean", offsets=shards.offsets)

    def score(self, x: Tensor, features: Tensor, labels: Tensor) -> dict[str, float]:
        outputs = self._outputs(x, features)
        loss = {"loss": float(self._loss(outputs, labels, "mean"))}
        if self.n_outputs > 1:
            return {**loss, "accuracy": float((outputs.argmax(-1) == labels).double().mean())}
        return {**loss, "r2": r2(outputs.reshape(-1), labels)}

    def values(self, x: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Mean loss ``[q]`` of each of q models ``x`` ``[q, d]`` on its own records ``[q, n, p]`` with labels ``[q, n]``."""
        queries, n = labels.shape
        out = x.new_zeros(queries)
        with torch.no_grad():
            for rows, records in self._blocks(queries, n, RECORD_LIMIT):
                part = vmap(self._mean_loss)(x[rows], features[rows, records], labels[rows, records])
                out[rows].add_(part, alpha=labels[rows, records].shape[1] / n)
        return out

    @cached_property
    def _module(self) -> nn.Module:
        return self._build(0)

    @cached_property
    def _layout(self) -> tuple[list[str], list[int], list[torch.Size]]:
        """Names, sizes and shapes of the parameters, in the order in which ``x`` holds them."""
        named = list(self._module.named_parameters())
        return [name for name, _ in named], [v.numel() for _, v in named], [v.shape for _, v in named]

    def _build(self, seed: int) -> nn.Module:
        return build_model(self.model, self.n_features, self.n_outputs, self.model_options, seed)

    def _call(self, x: Tensor, features: Tensor) -> Tensor:
        """Outputs ``[n, k]`` of the model with parameters ``x`` ``[d]`` on records ``[n, p]``."""
        names, sizes, shapes = self._layout
        parts = {name: part.view(shape) for name, part, shape in zip(names, torch.split(x, sizes), shapes)}
        outputs: Tensor = functional_call(self._module, parts, (features,))
        return outputs

    def _loss(self, outputs: Tensor, labels: Tensor, reduction: str) -> Tensor:
        if self.n_outputs > 1:
            return cross_entropy(outputs, labels, reduction=reduction)
        each = (outputs.reshape(-1) - labels).square() * 0.5
        return each if reduction == "none" else each.mean()

    def _mean_loss(self, x: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        return self._loss(self._call(x, features), labels, "mean")

    def _record_loss(self, x: Tensor, record: Tensor, label: Tensor) -> Tensor:
        return self._mean_loss(x, record[None], label[None])

    def _outputs(self, x: Tensor, features: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self._call(x, part) for part in torch.split(features, RECORD_LIMIT)])

    @staticmethod
    def _blocks(clients: int, n: int, limit: int) -> Iterator[tuple[slice, slice]]:
        """Blocks of (clients, records), together all C·n, each of ``limit`` records at most."""
        width, height = min(n, limit), max(1, limit // n)
        for first in range(0, clients, height):
            for begin in range(0, n, width):
                yield slice(first, first + height), slice(begin, begin + width)
