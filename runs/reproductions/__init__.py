"""The papers' figures and tables, each made anew by one command: ``dualfed reproduce NAME``.

How to write one. Every module of this folder may define a list ``REPRODUCTIONS``; nothing else has to be told of it:

    def _plan(scale, seeds):                       # which runs: configurations × seeds; checks nothing, runs nothing
        rounds = 400 if scale == "full" else 100
        return [
            Wanted({"epsilon_bar": e, "seed": seed}, {**_BASE, "seed": seed, "privacy": {"mode": "total", "epsilon": e}})
            for e in (1.0, 3.0, 8.0) for seed in seeds
        ]

    def _conclude(study):                          # a table, a figure and claims, from the frames of the finished runs
        table = study.rows.groupby("epsilon_bar")["accuracy"].agg(["mean", "std"]).reset_index()
        figure, (axes,) = panels(1, "Accuracy by total budget")
        curves(axes, study.metrics, by="epsilon_bar", y="accuracy", label="ε̄ = {}", percent=True)
        gain = 100 * (table["mean"].iloc[-1] - table["mean"].iloc[0])
        claim = Claim("accuracy rises with ε̄", gain > 0, f"{gain:+.1f} points from ε̄ = 1 to ε̄ = 8")
        return Conclusion(table, figure, [claim])

    REPRODUCTIONS = [Reproduction("fedspd-fig2", "Accuracy by total budget", "FedSPD-DP, figure 2", _plan, _conclude)]

* `Wanted(labels, tables)`: labels become columns of ``study.rows`` (one row a run), ``study.metrics`` and
  ``study.diagnostics`` (one row an evaluation); besides them ``study.rows`` has the columns of
  `dualfed.runs.study.measures.MEASURES` (accuracy, loss, objective, epsilon, epsilon_is, rounds_done, scalars_sent, …).
  Any other frame of the runs: ``study.frame("clients")``; whole results: ``study.results()``.
* Runs take place below ``OUT/runs``, in worker processes, each once: finished ones are read, interrupted ones continued.
  The engine is ``inline`` unless the tables say otherwise. Give every run a ``name``: it is in its folder's name.
* ``small`` must end within ten minutes on two cores; ``full`` is what the paper ran.
* `Claim(says, holds, measured)`: what the paper claims, whether it holds here (None where these runs cannot tell), and the
  numbers. The paragraph is made of the claims. A figure with diagnostics calls `mark_diagnostic(axes)`; an ε of a claimed
  method carries the word (`dualfed.runs.statement.epsilon_text`).
* Files: ``NAME.csv`` and ``.md`` (the table), ``NAME-runs.csv``, ``NAME.png`` and ``.svg``, ``NAME.txt`` (the paragraph),
  ``report.html``. ``--set key=value`` is put into every run's tables, so that one flag tries other data.
"""

from .figures import curves as curves
from .figures import mark_diagnostic as mark_diagnostic
from .figures import panels as panels
from .framework import Claim as Claim
from .framework import Conclusion as Conclusion
from .framework import Reproduced as Reproduced
from .framework import Reproduction as Reproduction
from .framework import reproduce as reproduce
from .registry import reproduction as reproduction
from .registry import reproductions as reproductions
