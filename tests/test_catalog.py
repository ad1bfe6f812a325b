"""The catalog of policies: names are known without loading anything, and a policy loads alone."""

import subprocess
import sys

import pytest

from bylot import Problem, Router
from bylot.cli import main
from bylot.cli.whatif import USUAL_POLICIES
from bylot.errors import PolicyError
from bylot.policies import POLICIES, POLICY_CLASSES, POLICY_NAMES, resolve_policy
from bylot.policies.catalog import POLICY_HOMES, POLICY_VARIANTS, PRODUCT, list_policies

PAIR = Problem(["a", "b"], draws=1)


def run_python(code: str) -> set[str]:
    """Run code in a fresh interpreter and return the modules of bylot and numba that it loaded."""
    words = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split() if name.startswith(("bylot", "numba"))}


def hide_research(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let imports of bylot_paper fail, as if it were not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "bylot_paper"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "bylot_paper", None)


def test_the_catalog_agrees_with_the_classes() -> None:
    assert {name: kind.name for name, kind in POLICY_CLASSES.items()} == {
        n: n for n in POLICY_HOMES
    }
    variants = {variant: kind.name for kind in POLICY_CLASSES.values() for variant in kind.variants}
    assert variants == POLICY_VARIANTS
    assert ("auto", *POLICIES) == POLICY_NAMES
    assert len(POLICIES) == len(set(POLICIES)) == len(POLICY_NAMES) - 1


def test_the_product_has_what_an_operator_may_choose() -> None:
    own = [name for name, home in POLICY_HOMES.items() if str(home).startswith(f"{PRODUCT}.")]
    assert own == ["distinct", "noisy-or", "tangent", "omd"]


def test_names_are_listed_without_the_compiler() -> None:
    loaded = run_python("from bylot import policies\nlist(policies.POLICIES)")
    assert loaded == {
        "bylot",
        "bylot.policies",
        "bylot.policies.catalog",
        "bylot.errors",
        "bylot._text",
    }


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("auto", {"bylot.policies.distinct"}),
        ("distinct", {"bylot.policies.distinct"}),
        ("noisy-or", {"bylot.policies.noisy_or"}),
        ("omd", {"bylot.policies.omd"}),
        ("random", {"bylot_paper.policies.random_panels"}),
        ("cucb", {"bylot_paper.policies.bandits"}),
    ],
)
def test_a_policy_is_loaded_without_the_others(policy: str, expected: set[str]) -> None:
    code = "from bylot import Problem\nfrom bylot.policies import resolve_policy\n"
    loaded = run_python(f"{code}resolve_policy({policy!r}, Problem(['a', 'b'], draws=1))")
    homes = {str(home).partition(":")[0] for home in POLICY_HOMES.values()}
    assert homes & loaded == expected


def test_without_the_research_package_an_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide_research(monkeypatch)
    for policy in ("cucb", "ts-bwk-instant", "strict:guard=true"):
        with pytest.raises(PolicyError, match=r"bylot_paper, which is not installed.*pip install"):
            Router(PAIR, policy)
    assert resolve_policy("auto", PAIR).name == "distinct"


def test_without_the_research_package_only_what_is_there_is_proposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert set(USUAL_POLICIES) <= set(list_policies(lambda policy: policy.uses_limits))
    hide_research(monkeypatch)
    there = list_policies(lambda policy: True)
    assert there == ["distinct", "noisy-or", "tangent", "omd", "omd-plain", "omd-sum", "omd-frozen"]


def test_without_the_benchmarks_an_error_says_where_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "bylot_bench", None)
    assert main(["bench", "start"]) == 1
    error = capsys.readouterr().err
    assert "the benchmarks are in bylot_bench, which the installed package leaves out" in error
    assert "pip install -e '.[bench]' in the folder of the repository" in error
