"""Checks of labels that several losses share."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import InvalidValue


def check_classes(labels: Tensor, n_classes: int) -> None:
    """Raises InvalidValue naming ``data.labels`` unless ``labels`` ``[n]`` are int64 in 0..n_classes−1."""
    if labels.dtype != torch.int64:
        cure = "classes are whole numbers (int64); take least-squares for real targets"
        raise InvalidValue("data.labels", str(labels.dtype).removeprefix("torch."), cure)
    wrong = (labels < 0) | (labels >= n_classes)
    if wrong.any():
        record = int(wrong.nonzero()[0])
        cure = f"the label of record {record} must be one of 0 to {n_classes - 1}"
        raise InvalidValue("data.labels", int(labels[record]), cure)


def check_targets(labels: Tensor) -> None:
    """Raises InvalidValue naming ``data.labels`` unless all targets ``[n]`` are finite."""
    wrong = ~torch.isfinite(labels)
    if wrong.any():
        record = int(wrong.nonzero()[0])
        cure = f"the target of record {record} is not finite; drop it or repair it"
        raise InvalidValue("data.labels", float(labels[record]), cure)
