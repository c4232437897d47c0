"""Methods beside each other: same records, partition, graph, seeds and budget, tuned with equal effort."""

from .compare import Comparison as Comparison
from .compare import compare as compare
from .statistics import paired_differences as paired_differences
from .sweep import Sweep as Sweep
from .sweep import sweep as sweep
