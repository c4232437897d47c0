from __future__ import annotations

import pytest
from dualfed.errors import InvalidValue
from dualfed.topology.config import TopologyConfig, parse_topology
from pydantic import ValidationError


def test_is_frozen():
    config = TopologyConfig(kind="ring")
    with pytest.raises(ValidationError):
        config.kind = "star"


@pytest.mark.parametrize(
    ("values", "field", "says"),
    [
        ({"kind": "circle"}, "topology.kind", 'give "ring", "path"'),
        ({"kind": "erdos-renyi", "p": 1.5}, "topology.p", "give a number from 0 to 1"),
        ({"kind": "erdos-renyi", "p": float("nan")}, "topology.p", "from 0 to 1"),
        ({"kind": "random-geometric", "radius": 0}, "topology.radius", "give a number > 0"),
        ({"kind": "ring", "p": 0.5}, "topology.p", "leave it out"),
        ({"kind": "grid", "degree": 3}, "topology.degree", "it takes cols, rows"),
        ({"kind": "edge-list"}, "topology.path", "needs the path"),
        ({"kind": "ring", "sides": 3}, "topology.sides", "there is no such field"),
    ],
)
def test_names_the_field_and_the_cure(values, field, says):
    with pytest.raises(InvalidValue) as caught:
        parse_topology(values)
    assert caught.value.field == field
    assert says in str(caught.value)
