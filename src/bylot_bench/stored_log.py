"""The router that benchmarks of the service play with, and stores with a long log of it."""

import numpy as np

from bylot._text import print_progress
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import CreateRouter, MakeDecision, RecordReward
from bylot.eventlog.events import now_us
from bylot.eventlog.repository import RouterRepository
from bylot.policies import find_policy, policy_to_data
from bylot.problem import Problem, at_most
from bylot.router.config import RouterConfig, problem_to_data
from bylot.store import open_store

DAY_US = 86_400_000_000
FILL_BATCH_DECISIONS = 500
PROGRESS_ROUTERS = 50  # between two lines of progress


def make_service_problem() -> Problem:
    """Return ten experts under one limit, three per request."""
    return Problem(
        experts=[f"expert-{n}" for n in range(10)],
        costs={"usd": [1.0 + n / 5 for n in range(10)]},
        limits=[at_most("usd", 5.5)],
        draws=3,
    )


def fill_store(url: str, routers: int, decisions: int, days: int = 0) -> None:
    """Let routers make their share of the decisions, in batches.

    days: the decisions were made over so many days until now, and each is rewarded; 0: all are
          made now, without rewards
    """
    handler = CommandHandler(RouterRepository(open_store(url), "bench"))
    policy = policy_to_data(find_policy("distinct"))
    problem = problem_to_data(make_service_problem())
    rng = np.random.default_rng(0)
    start = now_us() - days * DAY_US
    batches = max(1, decisions // routers // FILL_BATCH_DECISIONS)
    for n in range(routers):
        created = CreateRouter(f"r{n}", RouterConfig(problem=problem, policy=policy, seed=n))
        handler.perform_all([created], start)
        for batch in range(batches):
            at = start + batch * days * DAY_US // batches
            made = handler.perform_all([MakeDecision(f"r{n}")] * FILL_BATCH_DECISIONS, at)
            if days:
                rewards = zip(made, rng.random(len(made)).tolist(), strict=True)
                handler.perform_all([RecordReward(one.id, x) for one, x in rewards], at)
        if n % PROGRESS_ROUTERS == PROGRESS_ROUTERS - 1 or n == routers - 1:
            print_progress(f"... {n + 1:,} of {routers:,} routers")
    handler.close()
