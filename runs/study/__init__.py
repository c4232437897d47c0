"""Many runs for one question: what they are, how they are carried out, and the frames that come of them.

A study lists its runs as `Wanted` (labels and a configuration), `carry_out` brings them about below one folder, in
worker processes, and reads what is finished there instead of running it again; `Study` gives the frames.
"""

from .carrying import Refused as Refused
from .carrying import StudyStopped as StudyStopped
from .carrying import carry_out as carry_out
from .results import Study as Study
from .wanted import Wanted as Wanted
