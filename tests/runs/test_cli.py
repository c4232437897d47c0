"""The command line: quick, exact about what went wrong, and quiet otherwise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dualfed
import pytest
from dualfed.runs import cli
from typer.main import get_command

SMALL = [
    "--engine=inline",
    "--set=partition.clients=4",
    "--set=method.rounds=4",
    "--set=compare_without_privacy=false",
    "--set=evaluate_every=2",
]


class Told:
    """How a command ended and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def flat(self) -> str:
        """The output as one line, whatever the frames around it."""
        return " ".join(self.out.replace("│", " ").split())


Command = Callable[..., Told]


@pytest.fixture
def dualfed_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Run the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def command(*arguments: str) -> Told:
        monkeypatch.setattr(sys, "argv", ["dualfed", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        code = ended.value.code
        return Told(code if isinstance(code, int) else 0, out, err)

    return command


def test_help_and_version_import_nothing_heavy() -> None:
    heavy = "{'torch', 'ray', 'pandas', 'numpy', 'sklearn', 'scipy', 'matplotlib', 'pydantic', 'dp_accounting'}"
    for argument in ("--help", "--version"):
        code = (
            "import sys; sys.argv = ['dualfed', sys.argv[1]]\n"
            "from dualfed.runs.cli import main\n"
            "try: main()\n"
            f"except SystemExit: print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=True)
        assert done.stderr.strip() == "[]"
        assert "dualfed" in done.stdout


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, below in getattr(command, "commands", {}).items():
        yield (*path, name)
        yield from _commands(below, (*path, name))


COMMANDS = list(_commands(get_command(cli.app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_help_reads_alike(dualfed_command: Command, path: tuple[str, ...]) -> None:
    told = dualfed_command(*path, "--help")
    assert told.code == 0
    assert "[[" not in told.out
    for option, shown in (("--address", "ADDRESS"), ("--engine", "ray|inline"), ("--set", "KEY=VALUE")):
        lines = [line.split() for line in told.out.splitlines() if line.strip().startswith(f"{option} ")]
        assert all(words[1] == shown for words in lines), lines


def test_help_shows_commands_as_a_newcomer_meets_them(dualfed_command: Command) -> None:
    listed = dualfed_command("--help").out.partition("Commands:")[2].strip().splitlines()
    names = [line.split()[0] for line in listed]
    assert sorted(names) == sorted({path[0] for path in COMMANDS})
    assert names[:3] == ["run", "resume", "watch"]
    assert not [line for line in listed if line.endswith("...")], "a sentence that was cut"


def test_version(dualfed_command: Command) -> None:
    told = dualfed_command("--version")
    assert (told.code, told.out.strip()) == (0, f"dualfed {dualfed.__version__}")


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "dualfed", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"dualfed {dualfed.__version__}"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["run", "nonsense"], "PRESET"),
        (["run", "none.toml"], "FILE"),
        (["run", "quickstart", "--set", "privacy.epsilon"], "--set"),
        (["run", "quickstart", "--set", "privacy.epsilon=-1"], "privacy.epsilon"),
        (["run", "quickstart", "--set", "privacy.delta=1"], "privacy.delta"),
        (["run", "quickstart", "--set", "privacy.unknown=1"], "privacy.unknown"),
        (["run", "quickstart", "--set", "method.unknown=1"], "method.unknown"),
        (["run", "quickstart", "--set", "method.name=unknown"], "method.name"),
        (["run", "quickstart", "--set", "method.participants=99"], "method.participants"),
        (["run", "quickstart", "--set", "method.batch_size=5000"], "method.batch_size"),
        (["run", "quickstart", "--set", "method.rounds=1000000000000"], "method.rounds"),
        (["run", "quickstart", "--set", "data.name=synthetic", "--set", "data.records=1000000000000"], "data.records"),
        (["run", "quickstart", "--set", "partition.clients=100000"], "partition"),
        (["run", "quickstart", "--set", "data.name=idx"], "data.path"),
        (["run", "quickstart", "--set", "data.name=idx", "--set", "data.path=nowhere"], "data.path"),
        (["run", "quickstart", "--name", "a/b"], "name"),
        (["run", "quickstart", "--seed", "-1"], "seed"),
        (["resume", "nowhere"], "RUN"),
        (["resume", "/nowhere"], "RUN"),
        (["report", "no/where"], "RUN"),
        (["watch", ""], "RUN"),
        (["ledger", "show", "/nowhere"], "RUN"),
        (["plot", "nowhere"], "RUN"),
        (["ledger", "show", "nowhere"], "RUN"),
    ],
)
def test_what_a_person_can_cause_is_one_sentence(dualfed_command: Command, arguments: list[str], field: str) -> None:
    engine = ["--engine", "inline"] if arguments[0] == "run" else []
    told = dualfed_command(*arguments, *engine)
    assert told.code == 2
    lines = told.err.strip().splitlines()
    assert len(lines) == 1, told.err
    assert lines[0].startswith(f"error: {field}")
    assert " = " in lines[0]
    assert lines[0].count(": ") >= 2
    assert "Traceback" not in told.err
    assert not Path("dualfed-out").exists() or not any(Path("dualfed-out").iterdir())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("run --sed 3", "--sed is no option of `dualfed run`: did you mean --seed? `dualfed run --help` lists them"),
        ("run --no-such", "--no-such is no option of `dualfed run`: `dualfed run --help` lists them"),
        ("lst", "no such command 'lst'; did you mean 'list'? `dualfed --help` says what there is"),
        ("ledger nothing", "no such command 'nothing'; `dualfed ledger --help` says what there is"),
        (
            "resume",
            "RUN is not given: give a run's folder, as `dualfed run` printed it, or its name; `dualfed resume --help` says more",
        ),
        ("sweep quickstart", "--grid is not given: give values to try; `dualfed sweep --help` says more"),
        ("run --engine=x", "--engine = 'x': give ray or inline"),
        ("run --seed=x", "--seed = 'x': give a whole number"),
        ("run --seed", "option '--seed' requires an argument"),
        ("run one two", "got unexpected extra argument(s) (two); `dualfed run --help` says what there is"),
        ("serve one --port 99999", "--port = '99999': give a whole number from 0 to 65535"),
        ("compare one two --validation 2", "--validation = '2': give a number from 0.01 to 0.9"),
        ("compare one two --seeds 0", "--seeds = '0': give a whole number ≥ 1"),
        ("conformance --format x", "--format = 'x': give text, md or csv"),
        ("topology describe", "--kind is not given: name a preset or a file, or give --kind and --clients, such as "),
    ],
)
def test_a_command_that_cannot_be_read_is_one_sentence(dualfed_command: Command, line: str, sentence: str) -> None:
    told = dualfed_command(*line.split())
    assert told.code == 2
    assert told.err.startswith(f"error: {sentence}")
    assert told.err.count("\n") == 1


def test_a_group_without_a_command_shows_its_help(dualfed_command: Command) -> None:
    for line in ([], ["ledger"]):
        told = dualfed_command(*line)
        assert told.code == 2
        assert "Commands:" in told.err


def test_an_interrupt_says_how_to_go_on(dualfed_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dualfed.runs.cli_show.show_list", interrupted)
    told = dualfed_command("list")
    assert told.code == 130
    assert told.err.startswith("interrupted; a run that had begun goes on with `dualfed resume`")


def test_a_name_too_long_for_a_file_is_no_defect(dualfed_command: Command) -> None:
    for line in (["run", "x" * 300], ["report", "x" * 300], ["run", "quickstart", *SMALL, "--out", "x" * 300]):
        told = dualfed_command(*line)
        assert told.code == 2
        assert "File name too long" in told.err
        assert told.err.count("\n") == 1


def test_too_little_memory_is_no_defect(dualfed_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def hungry() -> None:
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr("dualfed.runs.cli_show.show_list", hungry)
    told = dualfed_command("list")
    assert told.code == 2
    assert told.err == "error: memory: Unable to allocate 7.28 TiB; take fewer records, features, clients or rounds\n"


def test_a_defect_shows_its_traceback(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['dualfed', 'list']\n"
        "import dualfed.runs.cli_show as show\n"
        "def broken(): raise RuntimeError('a defect')\n"
        "show.show_list = broken\n"
        "from dualfed.runs.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "RuntimeError: a defect" in done.stderr


def test_init_writes_a_file_that_runs(dualfed_command: Command) -> None:
    told = dualfed_command("init", "mine.toml")
    assert (told.code, Path("mine.toml").is_file()) == (0, True)
    assert dualfed_command("init", "mine.toml").code == 2
    told = dualfed_command("run", "mine.toml", *SMALL)
    assert told.code == 0, told.err
    assert Path("dualfed-out/run-1/metrics.parquet").is_file()


def test_list(dualfed_command: Command) -> None:
    told = dualfed_command("list")
    assert told.code == 0
    for word in ("fedspd-dp", "server", "record", "guaranteed", "claimed", "quickstart", "softmax", "digits", "idx"):
        assert word in told.out


def test_a_run_its_ledger_and_its_plots(dualfed_command: Command) -> None:
    told = dualfed_command("run", *SMALL, "--out", "one", "--seed", "3")
    assert told.code == 0, told.err
    assert "guaranteed (8.00, 1e-05)-DP for one record of a client" in told.flat
    assert "Each client holds" in told.flat
    assert "round 4/4" in told.err
    assert Path("one/plots/accuracy-epsilon.png").is_file()

    told = dualfed_command("ledger", "show", "one")
    assert told.code == 0
    assert told.out.count("guaranteed") == 4
    told = dualfed_command("ledger", "show", "one", "--client", "0")
    assert "RDP-without-replacement" in told.out
    assert "unamplified" in told.out
    assert dualfed_command("ledger", "show", "one", "--client", "4").code == 2
    assert dualfed_command("ledger", "show", "one", "--delta", "1").code == 2
    assert dualfed_command("ledger", "show", "one", "--delta", "1e-6").code == 0
    assert dualfed_command("plot", "one").code == 0
    assert dualfed_command("resume", "one").code == 2
    assert dualfed_command("run", *SMALL, "--out", "one").code == 2


def test_a_claimed_epsilon_is_never_printed_bare(dualfed_command: Command) -> None:
    told = dualfed_command("run", *SMALL, "--out", "one", "--set", "method.state=paper", "--set", "method.memory=1")
    assert told.code == 0, told.err
    for line in (told.err + told.out).splitlines():
        if "8.00" in line or "ε ≤" in line:
            assert "claimed" in line
    assert "claimed, not guaranteed: (8.00, 1e-05)-DP" in told.flat
    for more in ([], ["--client", "1"]):
        shown = dualfed_command("ledger", "show", "one", *more).out
        rows = [line for line in shown.splitlines() if "1e-05" in line]
        assert rows
        assert all("(claimed)" in row for row in rows)


def test_a_run_leaves_what_the_readme_names_and_no_more(dualfed_command: Command) -> None:
    assert dualfed_command("run", *SMALL, "--set", "evaluate_every=5", "--out", "one").code == 0
    names = {path.name for path in Path("one").iterdir()}
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    table = readme.partition("| file | holds |")[2].partition("\n\n")[0]
    named = {name.rstrip("/") for line in table.splitlines()[2:] for name in line.split("|")[1].split("`")[1::2]}
    assert names == named | {"report.html"}
    plots = {f"{what}-{against}.png" for what in ("accuracy", "objective") for against in ("rounds", "epsilon")}
    assert plots <= {path.name for path in Path("one/plots").iterdir()}


def test_a_run_is_found_by_its_name_everywhere(dualfed_command: Command) -> None:
    assert dualfed_command("run", *SMALL, "--name", "mine").code == 0
    for line in (
        "watch mine",
        "report mine",
        "plot mine",
        "ledger show mine",
        "plot mine-1",
        "report dualfed-out/mine-1",
    ):
        assert dualfed_command(*line.split()).code == 0, line
    assert dualfed_command("resume", "mine").err.startswith("error: RUN = 'dualfed-out/mine-1': is complete")
    assert dualfed_command("stop", "mine").err.startswith("error: RUN = 'dualfed-out/mine-1': does not go on now")


def test_without_noise(dualfed_command: Command) -> None:
    told = dualfed_command("run", *SMALL, "--out", "one", "--set", "privacy.mode=none")
    assert "ε = ∞ (no noise)" in told.flat
    assert "∞ (no noise)" in dualfed_command("ledger", "show", "one").out
    assert not Path("one/plots/accuracy-epsilon.png").exists()


def test_the_run_without_privacy_stands_beside(dualfed_command: Command) -> None:
    told = dualfed_command("run", *SMALL, "--out", "one", "--set", "compare_without_privacy=true")
    assert told.code == 0
    assert "The same run with and without privacy" in told.flat
    assert Path("one/without-privacy/metrics.parquet").is_file()


def test_a_spent_budget_ends_well_and_says_so(dualfed_command: Command) -> None:
    settings = [
        "privacy.mode=noise-multiplier",
        "privacy.noise_multiplier=2.0",
        "privacy.budget=1.0",
        "method.rounds=60",
    ]
    told = dualfed_command("run", *SMALL, "--out", "one", *(f"--set={setting}" for setting in settings))
    assert told.code == 0, told.err
    assert "4 of 4 clients stopped because their budget of ε = 1.00 is spent, after" in told.flat
    assert "exhausted" in told.flat


def test_every_public_name_is_there() -> None:
    assert set(dualfed.__all__) == set(dir(dualfed))
    for name in dualfed.__all__:
        assert getattr(dualfed, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        dualfed.nothing  # noqa: B018
