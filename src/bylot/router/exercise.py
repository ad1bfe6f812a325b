"""Everything that a router does, done once on a small problem, so that its code is compiled."""

from functools import cache

import numpy as np

from bylot.distributions import FixedSizeSets, IidSets
from bylot.limits.book import ALL_AVAILABLE
from bylot.policies.base import Policy
from bylot.policies.validation import check_run_config
from bylot.problem import Problem, at_most
from bylot.problem.instants import FULL_DAY_US
from bylot.router.core import RouterCore
from bylot.router.core_status import report_status
from bylot.router.edits import change_problem, follow_traffic
from bylot.router.past_rounds import PastRound, learn_rounds
from bylot.router.substitution import draw_expert


@cache
def make_exercise_problem() -> Problem:
    """A small problem that every policy can play."""
    costs = {"cost": [1.0, 2.0, 3.0, 1.5]}
    return Problem(["a", "b", "c", "d"], costs, [at_most("cost", 4.0)], draws=2)


def exercise_policy(policy: Policy) -> None:
    """Do once all that a router and an evaluation of its log do with a policy, so that all of their
    code is compiled. It does not depend on the numbers of the problem or of the settings.
    """
    problem = make_exercise_problem()
    run = check_run_config(problem, 0, None, (0.0, 1.0))
    if policy.guard:
        budgets = [at_most("cost", 400.0, per="day", scope=scope) for scope in (None, "tenant")]
        core = RouterCore(problem.replace(limits=budgets), policy, run, 1)
        core.decide(None, ALL_AVAILABLE, FULL_DAY_US, keys={"tenant": "tenant"})
        follow_traffic(core)
        report_status(core)
    for kind in policy.feedback:
        RouterCore(problem, policy, check_run_config(problem, 0, None, (0.0, 1.0), kind), 1)
    core = RouterCore(problem, policy, run, 1)
    report_status(core)
    if policy.learns_from_logs:
        learn_rounds(core, [PastRound(("a", "b"), 0.5, spend={"cost": 2.5})])
    ticket = core.decide(None, ALL_AVAILABLE).ticket
    core.learn(ticket, 0.5)
    core.settle(ticket, {"cost": 0.0})
    costs = core.decide(None, ALL_AVAILABLE).spend
    core.settle(None, {"cost": 0.5}, t=1)
    added = draw_expert(core, 0, 1, 0, core.book.mark_substitutes(2), ALL_AVAILABLE)
    core.exchange_call(1, 2, added)
    core.cancel(1, costs, costs, problem.experts[:2])
    report_status(core)
    change_problem(core, problem.replace(limits=[at_most("cost", 4.5)]))
    more = {"cost": [*problem.costs["cost"], 2.5]}
    change_problem(core, problem.replace(experts=[*problem.experts, "e"], costs=more))
    members, group = np.array([0, 1]), np.array([True, True, False, False])
    for panels in (FixedSizeSets(np.zeros(4), 2), IidSets(np.full(4, 0.25), 2)):
        _ = panels.log_probability(members), panels.inclusion, panels.group_counts(group)
