"""What a person is told about a mistake in a configuration: the field, the value, and what to give, in plain words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
from dualfed.algorithms.registry import make_method, method_class, method_names
from dualfed.errors import InvalidValue
from dualfed.runs.config import RunConfig, parse
from pydantic import BaseModel

MISTAKES: list[Any] = ["word", -1, 2.5, True, math.nan, math.inf, [], ["a"], {}, {"x": 1}, None, "", 10**30]
# Words of the library that checks types, not of this package.
FOREIGN = ("input", "valid", "unable to", "instance of", "should", "class '", "pattern", "validation")
TABLES = {"": RunConfig} | {
    name: info.annotation
    for name, info in RunConfig.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
}
FIELDS = [(table, field) for table, kind in TABLES.items() for field in [*kind.model_fields, "unknown_field"]]


def told(check: Callable[[dict[str, Any]], object], values: dict[str, Any]) -> InvalidValue | None:
    try:
        check(values)
    except InvalidValue as refused:
        return refused
    return None


def test_every_table_is_here() -> None:
    assert set(TABLES) >= {"", "data", "partition", "topology", "problem", "privacy", "time", "policy", "actors"}


@pytest.mark.parametrize(("table", "field"), FIELDS, ids=".".join)
def test_every_mistake_is_named_in_plain_words(table: str, field: str) -> None:
    refused = [told(parse, {table: {field: value}} if table else {field: value}) for value in MISTAKES]
    assert any(refused)
    for found in filter(None, refused):
        assert found.field.startswith(table or field)
        assert not any(word in found.cure.lower() for word in FOREIGN), str(found)


@pytest.mark.parametrize("name", method_names())
def test_parameters_of_methods_too(name: str) -> None:
    for field in dataclasses.fields(method_class(name)):
        for value in MISTAKES if field.init else []:
            found = told(make_method, {"name": name, field.name: value})
            assert found is None or found.field.startswith("method.")
            assert found is None or not any(word in found.cure.lower() for word in FOREIGN), str(found)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"privacy": {"epsilon": "many"}}, "privacy.epsilon = 'many': give a number from 0.0001 to 10000"),
        ({"privacy": {"epsilon": True}}, "privacy.epsilon = True: give a number from 0.0001 to 10000"),
        ({"partition": {"clients": 1.5}}, "partition.clients = 1.5: give a whole number ≥ 1"),
        ({"seed": -1}, "seed = -1: give a whole number from 0 to below 2^62"),
        ({"data": {"test_fraction": 1}}, "data.test_fraction = 1: give a number above 0 and below 1"),
        ({"data": {"bias": "perhaps"}}, "data.bias = 'perhaps': give true or false"),
        ({"data": {"image_size": [1]}}, "data.image_size = [1]: give a list of 2 whole numbers"),
        ({"data": {"ranges": {"age": "x"}}}, "data.ranges = {'age': 'x'}: give a table of lists of 2 numbers"),
        ({"time": {"speeds": [1, "a"]}}, "time.speeds = [1, 'a']: give a list of numbers"),
        ({"actors": {"clients_per_actor": 0}}, 'actors.clients_per_actor = 0: give a whole number ≥ 1 or "auto"'),
        ({"engine": "rey"}, 'engine = \'rey\': give "ray" or "inline"; did you mean "ray"?'),
        ({"data": "digits"}, "data = 'digits': is a table; give its fields, such as data.name = \"digits\""),
        ({"method": "x"}, "method = 'x': is a table; give its fields, such as method.name = \"fedspd-dp\""),
        ({"privcy": {}}, "privcy = {}: there is no such field; did you mean privacy?"),
        ({"epsilon": 3}, "epsilon = 3: there is no such field; did you mean privacy.epsilon?"),
        (
            {"data": {"clients": 3}},
            "data.clients = 3: there is no such field; did you mean data.client or partition.clients?",
        ),
        (
            {"policy": {"delay": 3}},
            "policy.delay = 3: there is no such field; there are kind, extra, deadline_s, buffer",
        ),
        ({"rounds": 3}, "rounds = 3: there is no such field; those of a method, such as rounds, stand in [method]"),
        ({"topology": {"kind": "edge-list"}}, "topology.path is not given: topology.kind = 'edge-list' needs the path"),
    ],
)
def test_sentences(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse(values)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"round": 3}, "method.round = 3: did you mean method.rounds? fedspd-dp has "),
        ({"name": "fedspd"}, "method.name = 'fedspd': did you mean fedspd-dp? give one of "),
        ({"rounds": True}, "method.rounds = True: give a whole number"),
        ({"memory": "some"}, "method.memory = 'some': give a number or \"auto\""),
        ({"state": "release"}, 'method.state = \'release\': give "released" or "paper"; did you mean "released"?'),
    ],
)
def test_sentences_of_methods(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make_method(values)
    assert str(caught.value).startswith(sentence)


def test_text_may_be_written_as_a_number() -> None:
    assert parse({"name": 2024}).name == "2024"
