"""Learning problems: model, loss, regulariser and their constants."""

from .base import Problem
from .hinge import HingeProblem
from .least_squares import LeastSquaresProblem
from .linear import LinearProblem
from .logistic import LogisticProblem
from .module import ModuleProblem
from .nonconvex import NonconvexLogisticProblem
from .registry import make_problem, own_fields, problem_class, register
from .softmax import SoftmaxProblem

__all__ = [
    "HingeProblem",
    "LeastSquaresProblem",
    "LinearProblem",
    "LogisticProblem",
    "ModuleProblem",
    "NonconvexLogisticProblem",
    "Problem",
    "SoftmaxProblem",
    "make_problem",
    "own_fields",
    "problem_class",
    "register",
]
