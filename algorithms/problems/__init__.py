"""Learning problems: model, loss, regulariser and their constants."""

from .base import Problem
from .least_squares import LeastSquaresProblem
from .linear import LinearProblem
from .logistic import LogisticProblem
from .registry import make_problem, problem_class, register
from .softmax import SoftmaxProblem

__all__ = [
    "LeastSquaresProblem",
    "LinearProblem",
    "LogisticProblem",
    "Problem",
    "SoftmaxProblem",
    "make_problem",
    "problem_class",
    "register",
]
