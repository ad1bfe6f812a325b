"""A policy at work under its limits, request by request and without a router."""

import copy
from typing import Any

import numpy as np

from bylot.limits.records import LimitTables
from bylot.limits.request import Ticket, View
from bylot.numerics.jit import Bools, Ints
from bylot.numerics.philox import RngKey
from bylot.policies import Policy
from bylot.policies import compiled_handle as compiled
from bylot.policies.base import NO_SCORES, NO_WINNER
from bylot.policies.binding import bind_policy, point_to, start_policy
from bylot.problem import Problem
from bylot.router.core import iterate_arrays

ALL_AVAILABLE: Bools = np.empty(0, np.bool_)


class PolicyAtWork:
    """A policy bound to a problem.

    rule, state: of the policy
    tables:      of the limits; None: they are not kept
    """

    def __init__(
        self, policy: Policy, problem: Problem, horizon: int | None = None, contexts: int = 1
    ) -> None:
        rules = bind_policy(policy, problem, horizon, "panel")
        bound = start_policy(policy, problem, *rules, contexts)
        self.problem = problem
        self.rule: Any = bound.rule
        self.state: Any = bound.state
        self.tables = bound.limits
        self.pointer = point_to(bound.limits, problem)
        costs = np.array(list(problem.costs.values())).reshape(-1, problem.size)
        totals = compiled.make_totals(len(costs))
        self.handle = compiled.make_handle(self.rule, self.state, self.pointer, totals, costs)

    @property
    def limits(self) -> LimitTables:
        """Rule and state of the limits, which are kept."""
        assert self.tables is not None
        return self.tables

    def see(self, context: int = 0, available: Bools = ALL_AVAILABLE) -> View:
        """Return what the policy sees of the limits, where no request has bounds of its own."""
        return View(self.pointer, context, available, False, False)

    def decide(self, key: RngKey, context: int = 0, available: Bools = ALL_AVAILABLE) -> Ticket:
        """Play a request."""
        costs = np.empty((2, len(self.problem.costs)))
        inclusion = np.empty(self.problem.draws)
        request = context, 0, key.seed, key.t, available
        drawn = compiled.draw_and_book(self.handle, *request, costs, inclusion)
        draws, q, pi, share, feasible, propensity, weight, replaced = drawn
        none = np.empty(0)
        return Ticket(
            t=key.t,
            context=context,
            draws=draws,
            draw_probabilities=none if q is None else q,
            inclusion=none if pi is None else pi,
            available=available,
            share=share,
            feasible=feasible,
            propensity=propensity,
            weight=weight,
            replaced=replaced,
        )

    def learn(self, ticket: Ticket, reward: float) -> None:
        """Learn from a reward."""
        compiled.learn_feedback(self.handle, ticket, reward, NO_SCORES, NO_WINNER, 0.0, 1.0)

    def draw(self, key: RngKey, context: int = 0, available: Bools = ALL_AVAILABLE) -> Ticket:
        """Play a request before which no bounds are due, and forget what it has cost."""
        self.limits.state.clock["asked"] = 1
        kept = copy.deepcopy(self.limits.state)
        ticket = self.decide(key, context, available)
        for array, before in zip(*map(iterate_arrays, (self.limits.state, kept)), strict=True):
            array[:] = before
        return ticket


def make_ticket(members: Ints, t: int = 0, context: int = 0) -> Ticket:
    """Return the ticket of a panel that was asked, of unknown probability."""
    none = np.empty(0)
    return Ticket(
        t=t,
        context=context,
        draws=members,
        draw_probabilities=none,
        inclusion=none,
        available=ALL_AVAILABLE,
        share=1.0,
        feasible=True,
        propensity=np.nan,
        weight=1.0,
        replaced=False,
    )
