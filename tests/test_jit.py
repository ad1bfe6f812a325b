"""The disk cache of compiled code can neither fail nor go stale."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import types
from numba.core import event

import bylot
import bylot.optima
from bylot import distributions, evaluate, metrics
from bylot.errors import InsufficientOverlap
from bylot.numerics import compile_cache
from bylot.numerics import jit as jit_module
from bylot.numerics.compile_cache import (
    EntryFiles,
    fingerprint_sources,
    prepare_folder,
    prune_versions,
)
from bylot.numerics.jit import (
    STRICT_OPTIONS,
    EntryCompiler,
    Floats,
    announce_compilation,
    jit,
    jit_entry,
    jit_scalar,
)
from bylot.optima import objective
from bylot.router import core
from sample_problem import make_five_expert_problem, make_recorded_environment

PROBE = """
from bylot.numerics import compile_cache as c
from bylot.numerics.philox import RngKey, draw_uniforms
print(c.CACHE_FOLDER, draw_uniforms(RngKey(1, 2), 3, 1)[0] > 0)
"""


COUNT_COMPILATIONS = """
from numba import types
from numba.core import event
from bylot import Problem, Router, at_most, simulate
from bylot.environments import Noisy
problem = Problem(["a", "b", "c"], {"usd": [1, 2, 3]}, [at_most("usd", 4)], draws=2)
with event.install_recorder("numba:compile") as recorder:
    router = Router(problem)
    router.reward(router.decide().id, 0.5)
    router.status()
    simulate(problem, Noisy([[0.2, 0.5, 0.8]]), rounds=10)
print(len(recorder.buffer))
"""


def run_probe(code: str = PROBE, **environment: str) -> str:
    """The output of a new process; by default its cache folder, and whether a kernel runs."""
    clean = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, env=clean | environment, capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def test_kernels_run_if_no_folder_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "a file, not a folder"
    file.touch()
    # Every possible cache folder is a file here.
    blocked = {name: str(file) for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    assert run_probe(**blocked) == "None True"


def test_a_given_folder_is_used_and_the_temporary_one_is_the_fallback(tmp_path: Path) -> None:
    assert run_probe(NUMBA_CACHE_DIR=str(tmp_path)).startswith(str(tmp_path))
    file = tmp_path / "a file"
    file.touch()
    fallback = tmp_path / "spare"
    fallback.mkdir()
    assert run_probe(XDG_CACHE_HOME=str(file), TMPDIR=str(fallback)).startswith(str(fallback))


def test_a_damaged_cache_entry_is_compiled_again(tmp_path: Path) -> None:
    folder = run_probe(NUMBA_CACHE_DIR=str(tmp_path)).split()[0]
    entries = list(Path(folder).rglob("*.nb?"))
    assert entries
    whole = [entry.read_bytes() for entry in entries]
    flipped = [content[:-50] + bytes([content[-50] ^ 1]) + content[-49:] for content in whole]
    for damage in ([b""] * len(whole), [b"no pickle"] * len(whole), flipped):
        for entry, content in zip(entries, damage, strict=True):
            entry.write_bytes(content)
        assert run_probe(NUMBA_CACHE_DIR=str(tmp_path)).endswith("True")
        left = [entry.read_bytes() for entry in entries]
        assert all(one != content for one, content in zip(left, damage, strict=True))


def test_signatures_that_are_saved_at_the_same_time_do_not_get_each_others_code(
    tmp_path: Path,
) -> None:
    names = [(f"signature {n}",) for n in range(160)]
    with ThreadPoolExecutor(8) as pool:  # each task has its own object, as a process has
        list(pool.map(lambda name: EntryFiles(str(tmp_path), "f", b"").save(name, [name]), names))
    entries = EntryFiles(str(tmp_path), "f", b"")
    assert [entries.load(name) for name in names] == [[name] for name in names]
    assert EntryFiles(str(tmp_path), "f", b"other source").load(names[0]) is None
    assert EntryFiles(str(tmp_path), "g", b"").load(names[0]) is None
    first, second = (tmp_path / entries.name_entry(name) for name in names[:2])
    first.write_bytes(second.read_bytes())
    assert entries.load(names[0]) is None, "it is the code of another signature"


def test_a_full_disk_does_not_stop_a_kernel(tmp_path: Path) -> None:
    folder = Path(run_probe(NUMBA_CACHE_DIR=str(tmp_path)).split()[0])
    shutil.rmtree(folder / "numerics")
    (folder / "numerics").touch()  # no entry can be written
    assert run_probe(NUMBA_CACHE_DIR=str(tmp_path)) == f"{folder} True"


def test_a_folder_that_another_user_could_fill_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    base = tmp_path / "bylot"
    base.mkdir()
    (tmp_path / "link").symlink_to(base)
    assert prepare_folder(tmp_path / "link", given=False) is None
    monkeypatch.setattr(os, "getuid", lambda: os.stat(base).st_uid + 1)
    assert prepare_folder(base, given=False) is None
    assert prepare_folder(base, given=True) is not None, "the user has named it"


def test_others_cannot_write_into_a_folder_that_is_used(tmp_path: Path) -> None:
    for base in (tmp_path / "new", tmp_path / "old"):
        if base.name == "old":
            base.mkdir()
            base.chmod(0o777)
        assert prepare_folder(base, given=False) is not None
        assert base.stat().st_mode & 0o022 == 0


def test_caches_that_were_not_used_for_long_are_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = {days: f"{days:016x}" for days in (0, 1, 2, 3, 31)}
    for days, name in names.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - days * 86_400,) * 2)
    (tmp_path / "something else").mkdir()
    monkeypatch.setattr(compile_cache, "MAX_CACHED_VERSIONS", 9)
    prune_versions(tmp_path / names[3])
    assert {path.name for path in tmp_path.iterdir()} == {*names.values(), "something else"} - {
        names[31]
    }
    monkeypatch.setattr(compile_cache, "MAX_CACHED_VERSIONS", 3)
    prune_versions(tmp_path / names[3])
    assert not (tmp_path / names[2]).exists(), "it is the least recently used of the others"
    assert all((tmp_path / names[days]).exists() for days in (0, 1, 3))


@jit
def square(x: float) -> float:
    return x * x


@jit_scalar
def halve(x: float) -> float:
    return x / 2


@jit_entry
def halve_square(x: float) -> float:
    return halve(square(x))


def test_only_functions_that_python_calls_become_machine_code() -> None:
    made: Any = square
    assert halve_square(3.0) == 4.5
    assert "entry" not in vars(made)
    assert square(3.0) == 9.0
    assert list(made.entry.overloads)
    assert halve(3) == 1.5
    assert not isinstance(vars(halve)["entry"], numba.core.dispatcher.Dispatcher)


def test_the_folder_depends_only_on_compiled_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compile_cache, "PACKAGE_FOLDER", tmp_path)
    (tmp_path / "numerics").mkdir()
    (tmp_path / "numerics" / "one.py").write_text("x = 1")
    before = fingerprint_sources()
    (tmp_path / "report.py").write_text("y = 1")
    assert fingerprint_sources() == before
    (tmp_path / "numerics" / "two.py").write_text("y = 1")
    assert fingerprint_sources() != before


def test_a_copy_of_the_package_uses_the_cache_of_the_first(tmp_path: Path) -> None:
    def list_entries() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")}

    entries = []
    for name in ("one", "two"):
        shutil.copytree(compile_cache.PACKAGE_FOLDER, tmp_path / name / "bylot")
        environment = {"NUMBA_CACHE_DIR": f"{tmp_path}/cache", "PYTHONPATH": f"{tmp_path}/{name}"}
        assert run_probe(**environment).endswith("True")
        entries.append(list_entries())
    assert entries[0]
    assert entries[0] == entries[1]


def test_a_process_with_a_warm_cache_compiles_nothing() -> None:
    run_probe(COUNT_COMPILATIONS)
    assert run_probe(COUNT_COMPILATIONS) == "0"


MANY_FEATURES = """
import numpy as np
from bylot.numerics.jit import jit_entry

@jit_entry
def compute(matrix, words):
    counts = {}
    for word in words:
        counts[word] = len(word)
    solved = np.linalg.solve(matrix, np.ones(2))
    np.random.seed(1)
    total = np.dot(matrix, solved).sum() + len(counts) + len({1.5, 2.5}) + np.random.random()
    if total < 0:
        raise ValueError("never")
    return total, sorted([3, 1])[0]

print(*compute(np.array([[2.0, 1.0], [1.0, 3.0]]), ("ann", "bob", "ann")), compute.stats.cache_hits)
"""


def test_cached_code_finds_all_symbols_in_a_process_that_has_compiled_nothing(
    tmp_path: Path,
) -> None:
    """numba registers symbols when it prepares to compile; a missing one would end the process."""
    (tmp_path / "features.py").write_text(MANY_FEATURES)
    run = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import features"
    first, second = (run_probe(run, NUMBA_CACHE_DIR=str(tmp_path / "cache")) for _ in range(2))
    assert first.endswith("Counter()")
    assert first.partition("Counter")[0] == second.partition("Counter")[0]
    assert second.endswith(": 1})")


def test_nothing_outside_the_listed_parts_is_compiled() -> None:
    marks = re.compile(
        r"^@(jit|jit_entry|jit_scalar|jit_inline|step|overload|intrinsic|structref)\b", re.MULTILINE
    )
    package = compile_cache.PACKAGE_FOLDER
    listed = set(compile_cache.list_sources(package, compile_cache.COMPILED_PARTS))
    assert listed
    for path in package.rglob("*.py"):
        if path not in listed:
            assert not marks.search(path.read_text()), path


OWN_RULES = """
import own_rule
from bylot.numerics.jit import jit_entry

@jit_entry
def answer(rule):
    return own_rule.compute(rule)

print(answer(own_rule.Rule(1)), sum(answer.stats.cache_hits.values()))
"""
OWN_RULE = """
from typing import NamedTuple
from bylot.numerics.jit import jit

class Rule(NamedTuple):
    x: int

@jit
def compute(rule):
    return rule.x + {n}
"""


def test_code_is_not_shared_by_classes_of_the_same_name_or_another_version(tmp_path: Path) -> None:
    answers = []
    for n in (1, 2, 2):
        (tmp_path / "own_rule.py").write_text(OWN_RULE.format(n=n))
        (tmp_path / "own_rules.py").write_text(OWN_RULES)
        run = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import own_rules"
        cache = str(tmp_path / "cache")
        # Python takes a file of the same size, changed within the same second, for unchanged.
        answers.append(run_probe(run, NUMBA_CACHE_DIR=cache, PYTHONDONTWRITEBYTECODE="1"))
    assert answers == ["2 0", "3 0", "3 1"]
    signature = [(types.NamedTuple((types.int64,), make_tuple_class(module)),) for module in "ab"]
    assert str(signature[0]) == str(signature[1])
    names = {EntryFiles("", "f", b"").name_entry((one,)) for one in signature}
    assert len(names) == 2


def make_tuple_class(module: str) -> Any:
    return namedtuple("Rule", ["x"], module=module)


def test_other_packages_keep_their_own_cache_folder() -> None:
    before = numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES
    assert jit(lambda x: x)(1) == 1
    assert before == (numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES)


def test_only_a_block_that_compiles_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    salt = time.time_ns()  # part of the key in the cache: no earlier run has compiled this function

    @jit
    def wait_and_add(x: int) -> int:
        return x + salt

    for x, announced in ((1, True), (2, False)):
        with announce_compilation("a test", after_s=0.001):
            wait_and_add(x)
            time.sleep(0.05)
        assert ("compiling a test" in capsys.readouterr().err) == announced


def test_every_wait_for_a_compilation_says_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    @contextmanager
    def record(line: str, seconds: float) -> Iterator[None]:
        said.append(line)
        yield

    def compile_each_time(module: Any, name: str) -> None:
        run = getattr(module, name)

        def compile_and_run(*given: Any) -> Any:
            with event.trigger_event("numba:compile"):
                return run(*given)

        monkeypatch.setattr(module, name, compile_and_run)

    def announced() -> str:
        (line,) = {*said}
        said.clear()
        return line.removeprefix("... compiling ").partition(",")[0]

    problem = make_five_expert_problem()
    router, environment = bylot.Router(problem, "distinct"), make_recorded_environment(20)
    values = environment.values
    trace = bylot.simulate(problem, environment, "omd", rounds=20, keep_distributions=True)
    log = evaluate.log_from_entries(problem, evaluate.entries_from_trace(trace))
    uniform = evaluate.make_iid_target(problem, dict.fromkeys(problem.experts, 0.2))
    monkeypatch.setattr(jit_module, "announce_if_slow", record)
    compile_each_time(core, "average_distribution")
    router.status()
    assert announced() == "the status of distinct"
    compile_each_time(objective, "reward_and_slope")
    bylot.optima.iid_optimum(problem, values, floor=True)
    assert announced() == "the optimum"
    compile_each_time(distributions, "log_iid_set_probability")
    evaluate.measure_agreement(log, uniform)
    assert announced() == "the evaluation"
    with suppress(InsufficientOverlap):  # the log is short
        evaluate.evaluate_target(log, uniform)
    assert announced() == "the evaluation"
    monkeypatch.undo()
    monkeypatch.setattr(jit_module, "announce_if_slow", record)
    compile_each_time(metrics, "expected_rewards")
    bylot.score(trace, values)
    assert announced() == "the rewards of a policy"


class Pair(NamedTuple):
    first: Floats
    second: Floats


class Nested(NamedTuple):
    pair: Pair
    third: Floats


@jit
def add_first(nested: Nested, by: float) -> None:
    """A function that compiled code calls with all arrays."""
    for i in range(nested.pair.first.size):
        nested.pair.first[i] += by * nested.third[i]


@jit_entry
def choose_array(nested: Nested, rounds: int, choice: int) -> Floats:
    """Fields, copies and rows of an argument, in a loop, and one of them as the answer."""
    chosen, best = nested.pair.second, nested.third
    for n in range(rounds):
        pair, same = nested.pair, chosen
        if n == choice:
            chosen = pair.first
        elif n == choice + 1:
            chosen = np.zeros(3)
        add_first(nested, same[0] + best[0])
    return chosen


def test_arrays_of_arguments_are_neither_freed_nor_leaked() -> None:
    arrays = [np.ones(3), np.zeros(3), np.full(3, 2.0)]
    nested = Nested(Pair(*arrays[:2]), arrays[2])
    before = [sys.getrefcount(one) for one in arrays]
    for choice in (-5, 1, 2):  # the second array, the first, and a new one
        for _ in range(50):
            choose_array(nested, 3, choice)
    assert [sys.getrefcount(one) for one in arrays] == before
    kept = choose_array(nested, 3, 2)
    assert sys.getrefcount(arrays[0]) > before[0]  # the answer holds it
    del nested, arrays, before
    assert (kept == kept[0]).all()


def test_references_of_arguments_are_not_counted() -> None:
    nested, counted = Nested(Pair(np.ones(3), np.zeros(3)), np.ones(3)), []
    for how in ({}, {"pipeline_class": EntryCompiler}):  # numba's compiler, and ours
        entry = numba.jit(**STRICT_OPTIONS, **how)(choose_array.py_func)  # type: ignore[attr-defined]
        entry(nested, 3, 1)
        (code,) = entry.inspect_llvm().values()
        counted.append(code.count("call void @NRT_incref"))
    assert counted[0] > 2 * counted[1]
