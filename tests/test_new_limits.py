"""The worked examples of CONTRIBUTING.md about limits: a window, a kind of limit, and a policy."""

import re
from pathlib import Path

from worked_examples import ROOT, apply_diff, copy_source, find_example, run_checks

CHECKS = """
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bylot import Problem, Router, at_most, problem_files
from bylot.cli.given_limits import parse_bound
from bylot.policies import register_policy
from bylot.problem.calendar import Calendar, find_window
from bylot.problem.instants import format_instant
from effort import Effort
from sampler import Sampler

# A window of three months, from the first day of a quarter in its time zone.
may = round(datetime(2026, 5, 20, tzinfo=UTC).timestamp() * 1e6)
window = find_window(Calendar("quarter", "Europe/Berlin"), may)
found = [format_instant(at, "Europe/Berlin") for at in window]
assert found == ["2026-04-01 00:00 Europe/Berlin", "2026-07-01 00:00 Europe/Berlin"], found

# Python, problem files and the command line take it.
experts, costs = ["ann", "bob", "eve"], {"usd": [1, 2, 4]}
budget = at_most("usd", 500, per="quarter")
problem = Problem(experts, costs, [budget], draws=1, traffic=2)
Path("pool.yaml").write_text(problem_files.write(problem))
assert problem_files.read("pool.yaml").problem.limits == (budget,)
assert parse_bound("usd=20/quarter/tenant").counted["per"] == "quarter"

# A kind of limit in that window, and a budget of it, kept by a policy from outside.
effort = at_most(Effort("effort", (2.0, 0.0, 0.5)), 1.0, per="quarter")
problem = Problem(experts, costs, [budget, effort], draws=1, traffic=2)
now = [may / 1e6]
register_policy(Sampler)
router = Router(problem, Sampler(guard=True), clock=lambda: now[0])
spent, asked = {}, {}
for n in range(400):
    now[0] += 86_400 / 2
    local = datetime.fromtimestamp(now[0], UTC)
    quarter = local.year, (local.month - 1) // 3
    decision = router.decide()
    spent[quarter] = spent.get(quarter, 0.0) + decision.spend["usd"]
    asked.setdefault(quarter, []).append({"ann": 2.0, "bob": 0.0, "eve": 0.5}[decision.subset[0]])
assert len(spent) == 3 and max(spent.values()) <= 500, spent
assert all(sum(efforts) <= len(efforts) for efforts in asked.values()), asked
router.save("router.bylot")
assert Router.load("router.bylot").problem == problem

# The contract of a policy, without the tests that compile the simulator.
kinds = "tenant or contexts or nested or request or averages"
words = f"not simulator and ({kinds})"
assert pytest.main(["-q", "-p", "no:cacheprovider", "-k", words, "test_sampler.py"]) == 0
"""

SCOPE_CHECKS = """
import subprocess
import sys
from pathlib import Path

import pytest

from bylot import Client, Problem, Router, at_most, problem_files
from bylot.errors import BudgetSpent
from bylot.gateway.contexts import find_keys
from live_server import live_server

budgets = [at_most("usd", 3, per="day", scope="user"), at_most("usd", 8, per="day", scope="tenant")]
problem = Problem(["ann", "bob"], {"usd": [1, 1]}, budgets, draws=1)
Path("pool.yaml").write_text(problem_files.write(problem))
assert problem_files.read("pool.yaml").problem.limits == tuple(budgets)

def spend_all(decide):
    for user in "vw":
        for _ in range(3):
            made = decide(tenant="acme", user=user)
            assert made.keys == {"tenant": "acme", "user": user}
        with pytest.raises(BudgetSpent, match="for user '" + user):
            decide(tenant="acme", user=user)
    decide(tenant="acme", user="x")
    decide(tenant="acme", user="x")
    with pytest.raises(BudgetSpent, match="for tenant 'acme'"):
        decide(tenant="acme", user="x")
    decide(tenant="acme2", user="x")
    with pytest.raises(Exception, match="limits for each user, and the request names none"):
        decide(tenant="acme2")

now = [1.7e9]
router = Router(problem, policy="distinct", clock=lambda: now[0])
spend_all(router.decide)
router.save("router.bylot")
loaded = Router.load("router.bylot", clock=lambda: now[0])
for each in (router, loaded):
    with pytest.raises(BudgetSpent, match="for user 'v'"):
        each.decide(tenant="acme3", user="v")
(status, _) = router.status().limits
assert (status.tenants.scope, status.tenants.active, status.tenants.spent) == ("user", 3, 3)
now[0] += 86_400
assert router.decide(tenant="acme", user="v").keys["user"] == "v"

with live_server(Path.cwd()) as server, Client(f"http://127.0.0.1:{server.port}") as client:
    remote = client.create("pool", problem, policy="distinct")
    spend_all(remote.decide)
    command = [sys.executable, "-m", "bylot", "decide", "pool", "--tenant=acme2", "--user=y"]
    subprocess.run([*command, f"--server=http://127.0.0.1:{server.port}"], check=True)
    assert "--user" in subprocess.run([*command[:4], "-h"], capture_output=True, text=True).stdout
with live_server(Path.cwd()) as server, Client(f"http://127.0.0.1:{server.port}") as client:
    with pytest.raises(BudgetSpent, match="for user 'v'"):
        client.router("pool").decide(tenant="acme3", user="v")
assert find_keys({b"x-bylot-user": b"ann"}, {"metadata": {"bylot_tenant": "acme"}}) == {
    "tenant": "acme", "user": "ann"
}
"""


def test_a_scope_touches_three_files(tmp_path: Path) -> None:
    source = copy_source(tmp_path)
    assert len(apply_diff(find_example("--- _scopes.py"), source / "bylot")) <= 4
    run_checks(SCOPE_CHECKS, tmp_path, source)


def test_a_window_touches_two_files_and_a_policy_two_with_two_steps(tmp_path: Path) -> None:
    """All examples are applied to one copy of the source, and played in one process."""
    source = copy_source(tmp_path)
    assert len(apply_diff(find_example("--- _windows.py"), source / "bylot")) == 2
    policy = find_example('"""sampler: ')
    assert 2 <= len(re.findall(r"^@step", policy, re.MULTILINE)) <= 4
    (tmp_path / "sampler.py").write_text(policy, encoding="utf-8")
    (tmp_path / "effort.py").write_text(find_example('"""Effort: '), encoding="utf-8")
    contract = find_example('"""The contract of the sampler')
    (tmp_path / "test_sampler.py").write_text(contract, encoding="utf-8")
    cache = str(tmp_path / "cache")
    with_paper = ROOT / "src"
    run_checks(CHECKS, tmp_path, source, tmp_path, with_paper, NUMBA_CACHE_DIR=cache)
