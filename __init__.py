"""dualfed: an actor-based simulator for private primal-dual learning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives. Modules behind it are free to move.
_PUBLIC: dict[str, str] = {
    "AsyncDPADMM": ".algorithms.async_dp_admm",
    "Ball": ".algorithms.regularisers",
    "Box": ".algorithms.regularisers",
    "Comparison": ".runs.comparison",
    "ConsensusADMM": ".algorithms.consensus_admm",
    "DPADMM": ".algorithms.dp_admm",
    "DPFedAvg": ".algorithms.dp_fedavg",
    "DPSGD": ".algorithms.dp_sgd",
    "Dataset": ".runs.data",
    "DualfedError": ".errors",
    "ElasticNet": ".algorithms.regularisers",
    "FedADMM": ".algorithms.fedadmm",
    "FedAvg": ".algorithms.fedavg",
    "FedProx": ".algorithms.fedprox",
    "FedSPDDP": ".algorithms.fedspd_dp",
    "GraphMethod": ".algorithms.method",
    "HingeProblem": ".algorithms.problems",
    "InvalidValue": ".errors",
    "L1": ".algorithms.regularisers",
    "L2": ".algorithms.regularisers",
    "LeastSquaresProblem": ".algorithms.problems",
    "Ledger": ".runs.ledger_client",
    "LogisticProblem": ".algorithms.problems",
    "Method": ".algorithms.method",
    "ModuleProblem": ".algorithms.problems",
    "NoRegulariser": ".algorithms.regularisers",
    "Problem": ".algorithms.problems",
    "Regulariser": ".algorithms.regularisers",
    "RunConfig": ".runs.config",
    "RunResult": ".runs.results",
    "SPADEDFL": ".algorithms.spade_dfl",
    "Scaffold": ".algorithms.scaffold",
    "Schedule": ".algorithms.schedule",
    "ServerMethod": ".algorithms.method",
    "SoftmaxProblem": ".algorithms.problems",
    "StepSize": ".algorithms.schedule",
    "StochasticDPADMM": ".algorithms.stochastic_dp_admm",
    "TopologyConfig": ".topology.config",
    "TwoPhaseDPADMM": ".algorithms.two_phase_dp_admm",
    "build_graph": ".topology.graphs",
    "compare": ".runs.comparison",
    "estimate": ".runs.estimate",
    "load_result": ".runs.results",
    "plot": ".runs.plots",
    "preset": ".runs.presets",
    "register": ".algorithms.registry",
    "report": ".runs.report",
    "resume": ".runs.simulate",
    "simulate": ".runs.simulate",
    "sweep": ".runs.comparison",
}

if TYPE_CHECKING:
    from .algorithms.async_dp_admm import AsyncDPADMM as AsyncDPADMM
    from .algorithms.consensus_admm import ConsensusADMM as ConsensusADMM
    from .algorithms.dp_admm import DPADMM as DPADMM
    from .algorithms.dp_fedavg import DPFedAvg as DPFedAvg
    from .algorithms.dp_sgd import DPSGD as DPSGD
    from .algorithms.fedadmm import FedADMM as FedADMM
    from .algorithms.fedavg import FedAvg as FedAvg
    from .algorithms.fedprox import FedProx as FedProx
    from .algorithms.fedspd_dp import FedSPDDP as FedSPDDP
    from .algorithms.method import GraphMethod as GraphMethod
    from .algorithms.method import Method as Method
    from .algorithms.method import ServerMethod as ServerMethod
    from .algorithms.problems import HingeProblem as HingeProblem
    from .algorithms.problems import LeastSquaresProblem as LeastSquaresProblem
    from .algorithms.problems import LogisticProblem as LogisticProblem
    from .algorithms.problems import ModuleProblem as ModuleProblem
    from .algorithms.problems import Problem as Problem
    from .algorithms.problems import SoftmaxProblem as SoftmaxProblem
    from .algorithms.registry import register as register
    from .algorithms.regularisers import L1 as L1
    from .algorithms.regularisers import L2 as L2
    from .algorithms.regularisers import Ball as Ball
    from .algorithms.regularisers import Box as Box
    from .algorithms.regularisers import ElasticNet as ElasticNet
    from .algorithms.regularisers import NoRegulariser as NoRegulariser
    from .algorithms.regularisers import Regulariser as Regulariser
    from .algorithms.scaffold import Scaffold as Scaffold
    from .algorithms.schedule import Schedule as Schedule
    from .algorithms.schedule import StepSize as StepSize
    from .algorithms.spade_dfl import SPADEDFL as SPADEDFL
    from .algorithms.stochastic_dp_admm import StochasticDPADMM as StochasticDPADMM
    from .algorithms.two_phase_dp_admm import TwoPhaseDPADMM as TwoPhaseDPADMM
    from .errors import DualfedError as DualfedError
    from .errors import InvalidValue as InvalidValue
    from .runs.comparison import Comparison as Comparison
    from .runs.comparison import compare as compare
    from .runs.comparison import sweep as sweep
    from .runs.config import RunConfig as RunConfig
    from .runs.data import Dataset as Dataset
    from .runs.estimate import estimate as estimate
    from .runs.ledger_client import Ledger as Ledger
    from .runs.plots import plot as plot
    from .runs.presets import preset as preset
    from .runs.report import report as report
    from .runs.results import RunResult as RunResult
    from .runs.results import load_result as load_result
    from .runs.simulate import resume as resume
    from .runs.simulate import simulate as simulate
    from .topology.config import TopologyConfig as TopologyConfig
    from .topology.graphs import build_graph as build_graph

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for (PEP 562), so that ``import dualfed`` costs nothing."""
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name], __name__), name)
    raise AttributeError(f"module 'dualfed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
