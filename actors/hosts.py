"""The host that fits a method."""

from __future__ import annotations

from ..algorithms.method import GraphMethod
from .edge_host import EdgeHost
from .graph_host import GraphHost
from .host import Host, HostSpec
from .messages import HostShard
from .waiting_host import WaitingHost


def make_host(spec: HostSpec, shard: HostShard, test: HostShard) -> Host:
    """A host of clients of a server, or of nodes of a graph, by the method's family."""
    if not isinstance(spec.method, GraphMethod):
        return WaitingHost(spec, shard, test)
    return (EdgeHost if spec.per_edge else GraphHost)(spec, shard, test)
