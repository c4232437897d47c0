"""How much of a client's memory stands out of the noise in it: ``memory = "auto"`` of FedSPD-DP (C5).

A client starts a round from w = x_i − x_0 and μ = λ_i/ρ, both functions of what it released, so whatever is computed from
them is free. With κ = γ/(γ + ρ) and a = (1/Q) Σ_{r=1..Q} κ^r, the round (C1)–(C3) is, but for the bend of the loss and of R,

    w⁺ = x̄ + n − x_0 = a w − (1 − a)(μ + ĝ/ρ) + n          n: the release's noise, of variance v = σ²/4 a coordinate
    μ⁺ = μ + w⁺      = a (w + μ) − (1 − a) ĝ/ρ + n

where ĝ is the average gradient, which carries the signal. So the noise (e_w, e_μ) in what the client remembers follows the
same recursion, and its covariance, the same in every coordinate, is known to everyone:

    P⁺ = M S P S Mᵀ + v 1 1ᵀ,   M = [[a, a − 1], [a, a]],   S = diag(s_x, s_λ),   P = 0 at the start.

The next x_0 is a mean that holds the client's own upload. Its fresh noise e_0 = (2/N) Σ_j n_j changes Var(n_i − e_0) to
v_i + (4/N)(mean_j v_j − v_i): nothing where all clients add equal noise, and a share of 4/N of the difference where they do
not, whoever was active. So the covariance of w needs no knowledge of the other clients.

For a vector y of d coordinates with noise of variance p each, E‖y‖² = ‖signal‖² + d p, and noise alone strays from d p by
d p √(2/d). What stands out of it by more than two such deviations is taken for signal:

    q = max(0, ‖y‖²/(d p) − 1 − 2√(2/d)),    s = q/(q + c)                                                    (C5)

With c = 1 and without the margin this is James and Stein's (1961) s = max(0, 1 − d p/‖y‖²), which loses least in the norm.
A model does not lose in the norm, though: its scores see the signal, which lies where the records lie, whole, and of noise
in random directions a small share. So noise counts for less, c = 0.2 (best of a few on the digits, where it matters little).
Either way all is kept where there is no noise, and what is noise alone is forgotten. Curvature makes the true noise smaller
than P says, so this forgets a little too much rather than too little.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# c of (C5): what error along the noise counts beside error along the signal.
NOISE_WEIGHT = 0.2


def kept_shares(memory: Tensor, noise: Tensor) -> Tensor:
    """(s_x, s_λ) of (C5), ``[C, 2]`` float64; exactly 1 where there is no noise.

    Args:
        memory: ``[C, 2, d]``, w and μ of each client.
        noise: ``[C, 3]``, P_ww, P_wμ and P_μμ.
    """
    d = memory.shape[-1]
    variance = noise[:, ::2].double()
    ratio = memory.square().sum(-1, dtype=torch.float64) / (d * variance)
    excess = (ratio - 1 - 2 * math.sqrt(2 / d)).clamp(min=0)
    # Without noise the ratio is infinite, or 0/0 where there is nothing to keep.
    return torch.where(variance == 0, 1.0, excess / (excess + NOISE_WEIGHT))


def carried_noise(noise: Tensor, shares: Tensor, start_weight: float, released: Tensor) -> Tensor:
    """P⁺ after a round, ``[C, 3]`` float64.

    Args:
        noise: ``[C, 3]``, P before it.
        shares: ``[C, 2]``, what was kept of w and μ.
        start_weight: a, the weight of a round's start in its average x̄.
        released: ``[C]`` v, the variance that the gate added to each coordinate of x̄.
    """
    a = start_weight
    first, both, second = (noise[:, k].double() for k in range(3))
    ww, wm, mm = first * shares[:, 0] ** 2, both * shares.prod(1), second * shares[:, 1] ** 2
    b = a - 1
    carried = (
        a * a * ww + 2 * a * b * wm + b * b * mm,
        a * a * ww + a * (a + b) * wm + a * b * mm,
        a * a * (ww + 2 * wm + mm),
    )
    return torch.stack(carried, 1) + released[:, None]
