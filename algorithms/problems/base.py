"""What a method and the privacy accounts need to know of a learning problem (P1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...errors import InvalidValue
from ..regularisers import NoRegulariser, Regulariser
from ..shards import Shards

# Features are scaled in floating point, so a record may pass its declared norm by rounding.
NORM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Problem(ABC):
    """Model, loss and regulariser, with the constants on which sensitivities rest.

    Clients are stacked along the first axis: a cohort's parameters are ``[C, d]``. All constants are those of a client
    of unit weight ``w_i = 1``.

    Attributes:
        n_features: p, the numbers of one record, bias column included.
        n_outputs: classes, or 1 where the model gives one number.
        record_norm: declared public bound on ‖a‖ of every record, bias column included; ``check`` enforces it.
        regulariser: R_i, the same for all clients.
        clip: bound on one record's gradient norm, enforced by scaling that record's gradient down; None: no clipping.
    """

    n_features: int
    n_outputs: int
    record_norm: float
    regulariser: Regulariser = field(default_factory=NoRegulariser)
    clip: float | None = None

    name: ClassVar[str]
    needs_record_norm: ClassVar[bool] = True  # whether a constant rests on it; else it may be inf

    def __post_init__(self) -> None:
        if self.n_features < 1:
            raise InvalidValue("data.features", self.n_features, "a record needs at least one feature")
        if not self.record_norm > 0 or (self.needs_record_norm and self.record_norm == float("inf")):
            raise InvalidValue("problem.record_norm", self.record_norm, "give a finite number > 0")
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise InvalidValue("problem.clip", self.clip, "give a finite number > 0, or leave it out for no clipping")

    @property
    @abstractmethod
    def dim(self) -> int:
        """d, the number of parameters."""

    @property
    @abstractmethod
    def gradient_bound(self) -> float:
        """G, which no record's gradient norm exceeds at any parameters; inf where there is no such bound."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L, the Lipschitz constant of one record's gradient (of what ``add_gradient`` adds, clipping included)."""

    @property
    @abstractmethod
    def convex_smooth(self) -> bool:
        """Whether ``add_gradient`` adds gradients of convex L-smooth functions, on which (D1) and (D2) rest."""

    @property
    @abstractmethod
    def has_accuracy(self) -> bool:
        """Whether ``score`` reports an accuracy."""

    def start(self, seed: int) -> np.ndarray:
        """The public parameters ``[d]``, float64, from which all clients start; the same for the same run's ``seed``."""
        return np.zeros(self.dim)

    @classmethod
    @abstractmethod
    def outputs_for(cls, n_classes: int) -> int:
        """``n_outputs`` for data with ``n_classes`` classes (0: regression). Raises InvalidValue if it has none."""

    def check(self, features: Tensor, labels: Tensor) -> None:
        """Checks the records of a data set once, at load; everything after trusts them.

        Args:
            features: ``[n, p]``.
            labels: ``[n]``.

        Raises:
            InvalidValue: naming ``data.features`` or ``data.labels`` and the first record at fault: not finite, longer
                than ``record_norm``, or a label that the loss has no meaning for.
        """
        if features.ndim != 2 or features.shape[1] != self.n_features:
            raise InvalidValue("data.features", tuple(features.shape), f"each record needs {self.n_features} features")
        if labels.shape != features.shape[:1]:
            raise InvalidValue("data.labels", tuple(labels.shape), f"give one label for each of {len(features)} rows")
        norms = torch.linalg.vector_norm(features, dim=1)
        # One pass finds all three faults: NaN and infinity carry over into the norm.
        wrong = ~(norms <= self.record_norm * (1 + NORM_TOLERANCE))
        if wrong.any():
            record = int(wrong.nonzero()[0])
            norm = float(norms[record])
            if norm != norm or norm == float("inf"):
                raise InvalidValue("data.features", norm, f"record {record} is not finite; drop it or repair it")
            cure = f"record {record} is longer than problem.record_norm = {self.record_norm:g}; scale it, or raise that"
            raise InvalidValue("data.features", norm, cure)
        self._check_labels(labels)

    @abstractmethod
    def _check_labels(self, labels: Tensor) -> None:
        """Raises InvalidValue naming ``data.labels``."""

    @abstractmethod
    def add_gradient(
        self, out: Tensor, x: Tensor, features: Tensor, labels: Tensor, scale: float | Tensor = 1.0
    ) -> None:
        """``out += scale · (mean over the n records of each client of the gradient at x)``, in place.

        Each record's gradient is clipped first when ``clip`` is set. The regulariser takes no part.

        Args:
            out: ``[C, d]``, rows contiguous.
            x: ``[C, d]``.
            features: ``[C, n, p]``.
            labels: ``[C, n]``.
            scale: one number, or one a client ``[C, 1]``.
        """

    @property
    def clips(self) -> bool:
        """Whether ``add_clipped_gradient`` is there."""
        return False

    def add_clipped_gradient(
        self, out: Tensor, x: Tensor, features: Tensor, labels: Tensor, clip: float, scale: float | Tensor = 1.0
    ) -> None:
        """As ``add_gradient``, each record's gradient scaled down to the norm ``clip`` first, in place of its own bound.

        What comes out need not be the gradient of any function: for methods whose sensitivity asks for no more than the
        norm. Only where ``clips``.
        """
        raise NotImplementedError(f"{self.name} does not clip record by record")

    def full_gradient(self, x: Tensor, shards: Shards, slots: Tensor, clip: float | None = None) -> Tensor:
        """Mean gradient over all m_i records of each client at its own parameters.

        Args:
            x: ``[C, d]``.
            shards: the records.
            slots: int64 ``[C]``, the client of each row of ``x``.
            clip: as for ``add_clipped_gradient``; ``None``: as for ``add_gradient``.

        Returns:
            ``[C, d]``.
        """
        out = torch.zeros_like(x)
        for where, features, labels in shards.batches(slots):
            whole = isinstance(where, slice)
            part = out[where] if whole else x.new_zeros(len(labels), x.shape[1])
            if clip is None:
                self.add_gradient(part, x[where], features, labels)
            else:
                self.add_clipped_gradient(part, x[where], features, labels, clip)
            if isinstance(where, Tensor):
                out.index_copy_(0, where, part)
        return out

    @abstractmethod
    def losses(self, x: Tensor, shards: Shards, slots: Tensor) -> Tensor:
        """f_i of each client at its own parameters, without the regulariser.

        With ``clip`` set this is still the loss as declared, not the Huber-like function whose gradient is clipped.

        Args:
            x: ``[C, d]``.
            shards: the records.
            slots: int64 ``[C]``, the client of each row of ``x``.

        Returns:
            ``[C]``.
        """

    @abstractmethod
    def client_losses(self, x: Tensor, shards: Shards) -> Tensor:
        """f_i of every client of ``shards`` at one common ``x`` ``[d]``, as ``[n_clients]``."""

    @abstractmethod
    def score(self, x: Tensor, features: Tensor, labels: Tensor) -> dict[str, float]:
        """Mean loss and quality of one model ``x`` ``[d]`` on records ``[n, p]`` with labels ``[n]``.

        Returns:
            ``loss`` and, for classes, ``accuracy`` as a fraction, or, for numbers, ``r2``.
        """
