"""The command line as a whole: quick help, errors on one line, output that cannot be delivered, and
hints about packages that are not installed.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bylot.cli import main, make_parser
from bylot.errors import install_command

BYLOT = [sys.executable, "-m", "bylot"]
ROOT = Path(__file__).parent.parent


def run_bylot(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process, as a user would."""
    return subprocess.run([*BYLOT, *arguments], capture_output=True, text=True, check=False)


def run_bylot_without_reader(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a process whose standard output is a pipe without a reader."""
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            [*BYLOT, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)


def test_help_lists_the_verbs() -> None:
    answer = run_bylot("--help")
    assert answer.returncode == 0
    assert "bench" in answer.stdout
    assert "demo" in answer.stdout


def test_help_does_not_load_the_compiler() -> None:
    code = (
        "import sys; from bylot.cli import make_parser; make_parser().format_help();"
        "print([m for m in ('numba', 'numpy', 'scipy', 'matplotlib', 'polars') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("given", "used"), [(None, 1), ("2", 2)])
def test_verbs_use_one_thread_of_blas_unless_more_are_asked_for(
    given: str | None, used: int
) -> None:
    code = (
        "from bylot.cli import main; main(['problem', 'check', 'none.yaml']);"
        "import scipy.linalg, threadpoolctl;"
        "print({pool['num_threads'] for pool in threadpoolctl.threadpool_info()"
        " if pool['user_api'] == 'blas'})"
    )
    environment = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    if given is not None:
        environment["OMP_NUM_THREADS"] = given
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == f"{{{used}}}"


def test_wrong_usage_exits_with_2_and_an_explained_error_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_bylot("fly").returncode == 2
    for option, wrong, expected in (
        ("--rounds", "0", "a whole number from 1 to 1,000,000"),
        ("--rounds", "many", "a whole number from 1 to 1,000,000"),
        ("--rounds", "2.5", "a whole number from 1 to 1,000,000"),
        ("--seed", "-1", "a whole number of 0 or more"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["demo", option, wrong])
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert f"argument {option}: invalid value {wrong!r}: expected {expected}" in error
    (tmp_path / "file").touch()
    assert main(["demo", "--out", str(tmp_path / "file")]) == 1
    assert "cannot be a folder for figures" in capsys.readouterr().err


def test_the_demo_says_first_what_was_learned_earned_spent_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    for _ in range(2):  # a second demo replaces the router of the first
        assert main(["demo", "--out", str(folder)]) == 0
    out = capsys.readouterr().out
    sentence = out.strip().partition("\n\n")[0]
    assert sentence in (ROOT / "README.md").read_text()
    assert "code: coder and house" in sentence
    assert "kept 3 of 3\nlimits at the end of each of its 5 periods" in sentence
    assert "as a new version compiles" in out
    steps = re.findall(r"^  bylot (.*?)  ", out.rpartition("Try next:")[2], re.MULTILINE)
    assert len(steps) == 2
    for step in steps:
        assert main(step.split()) == 0
    assert "10,001 events, 5,000 decisions, all verified" in " ".join(
        capsys.readouterr().out.split()
    )
    first = " ".join(sentence.split())
    assert (folder / "report.md").read_text().startswith(f"**{first}**")
    page = (folder / "report.html").read_text()
    assert page.index(f"<p class=lead>{first}") < page.index("<figure>")
    assert (folder / "demo.png").stat().st_size > 10_000


def test_a_demo_without_matplotlib_names_the_extra_before_it_routes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo", "--out", str(tmp_path / "new")]) == 1
    assert "figures need matplotlib: pip install '.[plot]'" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", [["problem", "schema"], ["problem", "new"]], ids=" ".join)
def test_output_to_a_closed_pipe_exits_quietly_with_141(
    verb: list[str],
) -> None:
    done = run_bylot_without_reader(*verb)
    assert done.returncode == 141
    assert done.stderr == ""


def test_help_to_a_closed_pipe_is_not_an_error() -> None:
    assert run_bylot_without_reader("--help").stderr == ""  # argparse may have swallowed the error


def test_an_error_is_printed_even_if_stdout_is_closed(tmp_path: Path) -> None:
    done = run_bylot_without_reader("problem", "check", str(tmp_path / "none.yaml"))
    assert done.returncode == 1
    assert done.stderr.startswith("bylot: ")
    assert len(done.stderr.splitlines()) == 1


def test_an_error_to_a_closed_stderr_exits_quietly(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*BYLOT, "problem", "check", str(tmp_path / "none.yaml")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=write, check=False)
    os.close(write)
    assert done.returncode == 141
    assert done.stdout == b""


def test_a_reader_can_stop_after_the_beginning_of_a_long_output(tmp_path: Path) -> None:
    names = [f"expert-{i:05d}-{'x' * 60}" for i in range(3_000)]  # more than a pipe holds
    lines = [f"  - {{name: {name}, usd: {1 + i % 3}}}\n" for i, name in enumerate(names)]
    rest = "costs: {usd: dollars}\nlimits:\n  - {cost: usd, at_most: 4, per: request}\n"
    pool = tmp_path / "pool.yaml"
    pool.write_text("draws: 2\nexperts:\n" + "".join(lines) + rest)
    writer = subprocess.Popen(
        [*BYLOT, "problem", "check", "--json", str(pool)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    with writer, writer.stdout, writer.stderr:
        assert writer.stdout.read(10).startswith(b"{")
        writer.stdout.close()
        assert writer.stderr.read() == b""
    assert writer.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_on_a_full_disk_is_an_error_of_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [*BYLOT, "problem", "schema"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("bylot: cannot write output: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_character_that_the_terminal_cannot_encode_is_escaped(tmp_path: Path) -> None:
    pool = tmp_path / "pool.yaml"
    pool.write_text(
        "draws: 1\nexperts: [{name: ann, group: été}, {name: bob, group: hiver}]\n"
        "limits: [{group: été, at_least: 0.2, per: request}]\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [*BYLOT, "problem", "check", "--details", str(pool)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\xe9t\xe9 at_least" in done.stdout


def find_hinted_extras() -> set[str]:
    """The extras that hints in the source name."""
    pattern = re.compile(r"(?:install_command|explain_missing_extra)\([\"'](\w+)[\"']\)")
    files = (ROOT / "src").rglob("*.py")
    return {extra for path in files for extra in pattern.findall(path.read_text(encoding="utf-8"))}


def test_every_extra_named_in_a_hint_exists_in_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    service_extras = {"client", "serve", "postgres", "text", "export"}
    assert find_hinted_extras() == {"plot", "reproduce", "ray", "bench"} | service_extras
    assert find_hinted_extras() <= set(project["optional-dependencies"])


def test_the_install_hint_is_written_in_one_place() -> None:
    files = (ROOT / "src").rglob("*.py")
    assert [path.name for path in files if "pip install" in path.read_text(encoding="utf-8")] == [
        "errors.py"
    ]


def test_the_install_hint_installs_from_the_folder_and_not_from_a_registry() -> None:
    assert install_command("ray").startswith("pip install '.[ray]' in the folder")


@pytest.mark.parametrize(
    "words", [["simulate", "pool.yaml"], ["compile"], ["router", "create", "triage", "pool.yaml"]]
)
def test_every_verb_takes_policies_with_the_same_flag(words: list[str]) -> None:
    options = ["--policy", "omd, distinct:eps=0.1,guard=false", "--policy", "random"]
    given = make_parser().parse_args([*words, *options])
    assert given.policy == ["omd", "distinct:eps=0.1,guard=false", "random"]


@pytest.mark.parametrize("words", [["simulate", "p.yaml"], ["compile"], ["evaluate", "--router=a"]])
def test_the_old_flag_of_policies_names_the_new_one(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--policies", "omd"])
    error = capsys.readouterr().err
    assert ("give policies with --policy" in error) == (words[0] == "evaluate")
    assert ("did you mean --policy?" in error) == (words[0] != "evaluate")


def test_a_router_has_one_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["router", "create", "triage", "pool.yaml", "--policy", "omd,random"]) == 1
    assert "--policy omd,random: a router has one; create a router" in capsys.readouterr().err
