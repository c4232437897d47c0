"""Methods beside each other: same records, partition, graph, seeds and budget, tuned with equal effort."""

from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .statistics import paired_differences as paired_differences
from .sweeping import Sweep as Sweep
from .sweeping import sweep as sweep
