"""What the contexts of a policy of mirror ascent share: theta, and what is learned by all of them.

A context has the logits theta + delta_x. Every reward moves theta, in batches of all contexts; and
delta_x moves by the rewards of its own context, by half as much. A context that was never seen
starts from theta. While there is only one context, delta is 0.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit
from bylot.policies.change_detection import ChangeTest, make_change_test
from bylot.policies.member_belief import MemberBelief, make_member_belief
from bylot.policies.mirror_ascent import GradientState, limit_memory, make_gradient_state
from bylot.problem.change import ProblemChange

PRIOR_BASELINE_REWARDS = 20.0  # rewards of a context that its baseline starts with


class SharedAscent(NamedTuple):
    """One row of each, so that it is indexed like the rows of contexts."""

    theta: Floats  # (1, K)
    inclusion: Floats  # (1, K) of theta alone
    spread: Floats  # (1, K) variances of the logits, summed over pooled decisions since a step
    counted: Ints  # one number: how many these are
    gradient: GradientState
    belief: MemberBelief
    change: ChangeTest
    recent: MemberBelief  # what the last rewards alone say
    evidence: Floats  # one number: for that, against the belief
    decisions: Ints  # one number
    contexts: Ints  # one number: how many were seen

    def migrate(self, new: "SharedAscent", change: ProblemChange) -> None:
        """Experts keep what is known about them."""
        one = replace(change, used=np.ones(1, np.bool_))
        one.copy_state(self, new, ("inclusion",))

    def is_valid(self, rule: Any) -> bool:
        parts = self.gradient, self.belief, self.change, self.recent
        counts = self.counted, self.decisions, self.contexts, self.evidence
        return all(part.is_valid(rule) for part in parts) and all((n >= 0).all() for n in counts)


def make_shared_ascent(theta: Floats, inclusion: Floats) -> SharedAscent:
    """Nothing learned yet."""
    K = theta.size
    return SharedAscent(
        theta=theta[None].copy(),
        inclusion=inclusion[None].copy(),
        spread=np.zeros((1, K)),
        counted=np.zeros(1, np.int64),
        gradient=make_gradient_state(1, K),
        belief=make_member_belief(1, K),
        change=make_change_test(1),
        recent=make_member_belief(1, K),
        evidence=np.zeros(1),
        decisions=np.zeros(1, np.int64),
        contexts=np.zeros(1, np.int64),
    )


@jit
def update_context_baseline(
    slope: GradientState, x: int, everyone: GradientState, memory: float
) -> None:
    """The mean of the last rewards of a context, which starts from that of all."""
    if everyone.rewards[0] > 0.0:
        mean, prior = everyone.total[0] / everyone.rewards[0], PRIOR_BASELINE_REWARDS
        slope.baseline[x] = (slope.total[x] + prior * mean) / (slope.rewards[x] + prior)
        slope.based[x] = True
    limit_memory(slope, x, memory)
