"""Losses of linear scores s = Xa: two batched matrix products give the gradient ∂ℓ/∂s ⊗ a of all clients at once."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ..shards import Shards
from .base import Problem


@dataclass(frozen=True)
class LinearProblem(Problem):
    """A problem whose loss sees a record's features only through the scores ``s = Xa``.

    ``x`` ``[d]`` is read as X ``[k, p]``, one row an output, with d = k·p: for k ≪ p the batched products are then
    several times faster than with X ``[p, k]``. Scores are ``[..., k, n]`` for the same reason: a softmax over a short
    last axis is slow. A subclass gives the loss and its derivative in the scores. One record's gradient is
    ``∂ℓ/∂s ⊗ a``, so its norm is ``‖∂ℓ/∂s‖·‖a‖`` and clipping it scales ``∂ℓ/∂s``: no gradient of a single record is
    ever formed.
    """

    @property
    def dim(self) -> int:
        return self.n_outputs * self.n_features

    @property
    def convex_smooth(self) -> bool:
        return True

    @abstractmethod
    def residual(self, scores: Tensor, labels: Tensor) -> Tensor:
        """∂ℓ/∂s, as ``[..., k, n]``, of scores ``[..., k, n]`` and labels ``[..., n]``; may overwrite ``scores``."""

    @abstractmethod
    def record_losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        """ℓ of each record, as ``[..., n]``, of scores ``[..., k, n]`` and labels ``[..., n]``."""

    @abstractmethod
    def quality(self, scores: Tensor, labels: Tensor) -> dict[str, float]:
        """What ``score`` reports beside the loss, of scores ``[k, n]`` and labels ``[n]``."""

    @property
    def clips(self) -> bool:
        return True

    def add_gradient(
        self, out: Tensor, x: Tensor, features: Tensor, labels: Tensor, scale: float | Tensor = 1.0
    ) -> None:
        self._add(out, x, features, labels, self.clip, scale)

    def add_clipped_gradient(
        self, out: Tensor, x: Tensor, features: Tensor, labels: Tensor, clip: float, scale: float | Tensor = 1.0
    ) -> None:
        self._add(out, x, features, labels, clip if self.clip is None else min(clip, self.clip), scale)

    def _add(
        self, out: Tensor, x: Tensor, features: Tensor, labels: Tensor, clip: float | None, scale: float | Tensor
    ) -> None:
        residual = self.residual(self._batched_scores(x, features), labels)
        if clip is not None:
            norms = torch.linalg.vector_norm(features, dim=-1) * torch.linalg.vector_norm(residual, dim=-2)
            # clip / 0 is inf, which the clamp turns into 1: a zero gradient stays zero.
            residual.mul_(norms.reciprocal_().mul_(clip).clamp_(max=1.0).unsqueeze(-2))
        step = 1.0 / features.shape[1]
        if isinstance(scale, Tensor):
            residual.mul_(scale.unsqueeze(-1))
        else:
            step *= scale
        # Into a view of `out`: no gradient is held beside it.
        view = out.view(-1, self.n_outputs, self.n_features)
        view.baddbmm_(residual, features, alpha=step)

    def losses(self, x: Tensor, shards: Shards, slots: Tensor) -> Tensor:
        out = x.new_empty(len(x))
        for where, features, labels in shards.batches(slots):
            out[where] = self.record_losses(self._batched_scores(x[where], features), labels).mean(1)
        return out

    def client_losses(self, x: Tensor, shards: Shards) -> Tensor:
        losses = self.record_losses(self._scores(x, shards.features), shards.labels)
        return torch.segment_reduce(losses, "mean", offsets=shards.offsets)

    def score(self, x: Tensor, features: Tensor, labels: Tensor) -> dict[str, float]:
        scores = self._scores(x, features)
        return {"loss": float(self.record_losses(scores, labels).mean()), **self.quality(scores, labels)}

    def _batched_scores(self, x: Tensor, features: Tensor) -> Tensor:
        return torch.bmm(x.reshape(-1, self.n_outputs, self.n_features), features.transpose(1, 2))

    def _scores(self, x: Tensor, features: Tensor) -> Tensor:
        return x.reshape(self.n_outputs, self.n_features) @ features.t()
