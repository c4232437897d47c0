"""Which part of a client's released memory is signal: ``memory = "auto"`` of FedSPD-DP (C5)."""

from __future__ import annotations

import os

import torch
from torch import Tensor


def keep(pair: Tensor, noise: Tensor) -> Tensor:
    d = pair.shape[-1]
    pair = pair.double()
    gram = pair @ pair.mT / d
    variant = os.environ.get("VARIANT", "em")
    eye = torch.eye(2, dtype=torch.float64)
    if variant == "em":
        s, v = torch.linalg.eigh(gram)
        ok = s > 1e-12 * s[:, -1:].clamp(min=1e-300)
        root = torch.where(ok, s, 0).sqrt()
        inv = torch.where(ok, 1 / root, 0)
        half, back = v * root[:, None] @ v.mT, v * inv[:, None] @ v.mT
        m, u = torch.linalg.eigh(back @ noise @ back)
        A = half @ (u * (1 - m).clamp(min=0)[:, None]) @ u.mT @ back
    else:
        r = torch.diagonal(noise, dim1=1, dim2=2) / torch.diagonal(gram, dim1=1, dim2=2)
        A = torch.diag_embed((1 - r.nan_to_num(0.0)).clamp(min=0))
        if variant == "js1":  # one s: the smaller
            A = torch.diagonal(A, dim1=1, dim2=2).amin(1)[:, None, None] * eye
        D = torch.diagonal(A, dim1=1, dim2=2).clone()
        if variant == "jsL":
            D[:, 0] = 1
            A = torch.diag_embed(D)
        if variant == "jsW":
            D[:, 1] = 1
            A = torch.diag_embed(D)
        if variant == "sqrt":
            A = A.sqrt()
        if variant == "half":
            A = torch.diag_embed((1 - 0.5 * r.nan_to_num(0.0)).clamp(min=0))
        if variant == "w0":
            D[:, 0] = 0
            A = torch.diag_embed(D)
        if variant.startswith("wien"):
            c, both = float(variant[4:7]), variant.endswith("b")
            q = 1 / r
            sig = (q - 1 - 2 * (2 / d) ** 0.5).clamp(min=0)
            W = (sig / (sig + c)).nan_to_num(1.0)
            if not both:
                W[:, 0] = D[:, 0]
            A = torch.diag_embed(W)
        if variant == "joint":
            t = torch.diagonal(noise, dim1=1, dim2=2).sum(1) / torch.diagonal(gram, dim1=1, dim2=2).sum(1)
            A = (1 - t.nan_to_num(0.0)).clamp(min=0)[:, None, None] * eye
    still = (noise == 0).all(-1).all(-1)
    return torch.where(still[:, None, None], eye, A)
