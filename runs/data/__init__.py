"""Records to learn from: built-in, synthetic, or files that a person brings."""

from .dataset import Dataset
from .loading import load

__all__ = ["Dataset", "load"]
