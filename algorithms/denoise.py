"""How much of a client's memory stands out of the noise in it: ``memory = "auto"`` of FedSPD-DP (C5).

A client starts a round from w = x_i − x_0 and μ = λ_i/ρ, both functions of what it released, so whatever is computed from
them is free. With κ = γ/(γ + ρ) and a = (1/Q) Σ_{r=1..Q} κ^r, the round (C1)–(C3) is, but for the bend of the loss and of R,

    w⁺ = x̄ + n − x_0 = a w − (1 − a)(μ + ĝ/ρ) + n          n: the release's noise, of variance v = σ²/4 a coordinate
    μ⁺ = μ + w⁺      = a (w + μ) − (1 − a) ĝ/ρ + n

where ĝ is the average gradient, which carries the signal. So the noise (e_w, e_μ) in what the client remembers follows the
same recursion, and its covariance, the same in every coordinate, is known to everyone:

    P⁺ = M S P S Mᵀ + v 1 1ᵀ,   M = [[a, a − 1], [a, a]],   S = diag(s_x, 1),   P = 0 at the start.

The next x_0 is a mean that holds the client's own upload. Its fresh noise e_0 = (2/N) Σ_j n_j changes Var(n_i − e_0) to
v_i + (4/N)(mean_j v_j − v_i): nothing where all clients add equal noise, and a share of 4/N of the difference where they do
not, whoever was active. So the covariance of w needs no knowledge of the other clients.

James and Stein (1961) shrink a vector of d coordinates with noise of variance p each by max(0, 1 − d·p/‖·‖²), which loses less
than the vector itself does. It keeps everything where there is no noise and forgets what is noise alone:

    s_x = max(0, 1 − d·P_ww/‖w‖²),   s_λ = 1                                                                (C5)

The dual is kept whole. With w forgotten it becomes μ⁺ = a μ − (1 − a) ĝ/ρ + n, an average over the client's past gradients
whose noise is bounded by v/(1 − a²): the one thing that tells a client's own objective from the others', and the only place
where the rounds' noise averages out. Shrunk by its own norm it never stands out of the noise, since what it holds then is one
round's worth: on the digits with two classes a client that was as if there were no memory (ρ = 0.3, ε = 3 and 8: 3 to 7
points of accuracy below), and gained little on clients that are alike.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kept_share(away: Tensor, noise: Tensor) -> Tensor:
    """s_x of (C5), ``[C]`` float64; exactly 1 where there is no noise.

    Args:
        away: ``[C, d]``, w of each client.
        noise: ``[C, 3]``, P_ww, P_wμ and P_μμ.
    """
    variance = noise[:, 0].double()
    energy = away.square().sum(-1, dtype=torch.float64)
    # Without noise and memory the quotient is 0/0, and all of nothing is kept.
    return torch.where(variance == 0, 1.0, (1 - away.shape[-1] * variance / energy).clamp(min=0))


def carried_noise(noise: Tensor, share: Tensor, start_weight: float, released: Tensor) -> Tensor:
    """P⁺ after a round, ``[C, 3]`` float64.

    Args:
        noise: ``[C, 3]``, P before it.
        share: ``[C]``, s_x.
        start_weight: a, the weight of a round's start in its average x̄.
        released: ``[C]`` v, the variance that the gate added to each coordinate of x̄.
    """
    a, b = start_weight, start_weight - 1
    ww, wm, mm = (noise[:, k].double() for k in range(3))
    ww, wm = ww * share**2, wm * share
    carried = (
        a * a * ww + 2 * a * b * wm + b * b * mm,
        a * a * ww + a * (a + b) * wm + a * b * mm,
        a * a * (ww + 2 * wm + mm),
    )
    return torch.stack(carried, 1) + released[:, None]
