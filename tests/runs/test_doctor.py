"""What the doctor says, for machines that are as they should be and for others."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest
from dualfed.actors.survey import machine
from dualfed.runs import doctor
from typer.testing import CliRunner


@pytest.fixture
def here():
    return machine()


def states(findings, what):
    return [finding.state for finding in findings if finding.what == what]


def test_this_installation_is_looked_at_without_starting_anything(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    findings = doctor.examine()
    assert states(findings, "leftovers") == ["good"]
    assert states(findings, "Python") == ["good"]
    assert {"memory", "disk", "shared memory", "cores", "compiled kernels"} <= {each.what for each in findings}
    assert list(tmp_path.iterdir()) == []


def test_folders_of_killed_runs_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "dualfed-2147483647-abc").mkdir()
    (tmp_path / f"dualfed-{os.getpid()}-abc").mkdir()
    [left] = [finding for finding in doctor.examine() if finding.what == "leftovers"]
    assert left.state == "note"
    assert "2147483647" in left.text
    assert str(os.getpid()) not in left.text


@pytest.mark.parametrize(
    ("change", "what", "state"),
    [
        ({"memory_free": 100 << 20}, "memory", "wrong"),
        ({"temporary_free": 100 << 20}, "disk", "wrong"),
        ({"temporary_writable": False}, "temporary folder", "wrong"),
        ({"shared_memory": 64 << 20}, "shared memory", "note"),
        ({}, "memory", "good"),
    ],
)
def test_too_little_room_is_told_with_its_cure(here, change, what, state):
    roomy = {"memory_free": 8 << 30, "temporary_free": 8 << 30, "temporary_writable": True, "shared_memory": 8 << 30}
    findings = list(doctor._room(dataclasses.replace(here, **{**roomy, **change}), "here"))
    assert states(findings, what) == [state]


@pytest.mark.parametrize(
    ("package", "found", "state"),
    [("ray", "1.0.0", "wrong"), ("torch", "1.0.0", "wrong"), ("numpy", None, "wrong"), ("scipy", "0.1", "note")],
)
def test_a_node_with_other_versions(here, package, found, state):
    there = dataclasses.replace(here, versions={**here.versions, package: found})
    assert states(list(doctor._same("node", here, there)), package) == [state]


def test_a_node_with_another_python(here):
    there = dataclasses.replace(here, python="3.99.0")
    assert states(list(doctor._same("node", here, there)), "Python") == ["wrong"]
    assert states(list(doctor._same("node", here, here)), "versions") == ["good"]


def test_a_cluster_that_is_not_there_ends_with_code_1():
    from dualfed.runs.cli import app

    said = CliRunner().invoke(app, ["doctor", "--address", "127.0.0.1:1", "--json"])
    assert said.exit_code == 1
    wrong = [finding for finding in json.loads(said.stdout) if finding["state"] == "wrong"]
    assert [finding["what"] for finding in wrong if finding["where"] == "127.0.0.1:1"] == ["cluster"]
    assert "Connection refused" in wrong[-1]["text"]
