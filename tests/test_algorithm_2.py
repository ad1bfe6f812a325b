"""The shared dual must be charged for the policy that was played.

The printed line (b) of the paper's Algorithm 2 charges the *current* context's last iterate, the
remark after it the policy actually played. Where contexts are seen twice each, the printed line
charges their first policy only, never the one they learned: a violation that does not vanish.
"""

import numpy as np

from bound_policies import PolicyAtWork
from bylot import Problem, at_most
from bylot.numerics.philox import RngKey
from bylot.policies import Omd
from sample_problem import distance_to_box

EXPENSIVE_AND_CHEAP = Problem(
    ["good", "cheap"], {"usd": [1.0, 0.0]}, [at_most("usd", 0.55)], draws=1, floor=0.05
)


def compute_violation(contexts: int, printed: bool) -> float:
    """Distance of the mean surrogate cost from S when each context is seen twice."""
    policy = Omd(eta=0.5, batch=1, baseline=False)
    play = PolicyAtWork(policy, EXPENSIVE_AND_CHEAP, contexts=contexts)
    rule, state = play.rule, play.state
    u, t = [], 0
    for x in range(contexts):
        for _ in range(2):
            if printed and t:
                state.dual.u[:] = rule.rows @ state.q[x]
            ticket = play.decide(RngKey(1, t), x)
            play.learn(ticket, float(ticket.draws[0] == 0))
            u.append(rule.rows @ state.q[x])
            t += 1
    return distance_to_box(EXPENSIVE_AND_CHEAP.box, np.mean(u, axis=0))


def test_charging_the_policy_played_leaves_no_violation() -> None:
    assert compute_violation(contexts=500, printed=False) == 0
    assert compute_violation(contexts=4_000, printed=False) == 0


def test_the_printed_line_leaves_a_violation_that_does_not_vanish() -> None:
    assert compute_violation(contexts=500, printed=True) > 0.05
    assert compute_violation(contexts=4_000, printed=True) > 0.05
