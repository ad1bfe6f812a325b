"""The gateway learns whom to ask from recorded answers of ten real models, within a budget.

BYLOT_RECORDED_CHATS sets how many requests are sent for each of BYLOT_RECORDED_SEEDS seeds.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import numpy as np
import pytest

from bylot.gateway.config import ScorerEntry
from bylot.numerics.jit import Floats
from bylot.router.config import problem_to_data
from gateway_target import RunningGateway, start_gateway, wait_for_quiet
from recorded_answers import EXTRACT, PRICES, Question, find_recorded_file
from recorded_optima import RecordedTable, References, read_recorded_table
from upstreams import ReplayUpstream

CHATS = int(os.environ.get("BYLOT_RECORDED_CHATS", "5000"))
SEEDS = int(os.environ.get("BYLOT_RECORDED_SEEDS", "4"))
CONCURRENT = 4
PERIOD = 1_000


class Play(NamedTuple):
    """What became of requests, in the order of their decisions; dollars by the settlements."""

    panels: list[tuple[str, ...]]
    scores: Floats
    calls: Floats
    dollars: Floats
    missed: int  # periods outside the budget, as the router says


@pytest.fixture(scope="module")
def recorded() -> RecordedTable:
    return read_recorded_table(find_recorded_file())


@pytest.fixture(scope="module")
def references(recorded: RecordedTable) -> References:
    return recorded.find_references()


async def chat_all(gateway: RunningGateway, questions: Sequence[Question]) -> list[dict[str, Any]]:
    """The objects `bylot` of the answers to questions, in their order."""
    limit, headers = asyncio.Semaphore(CONCURRENT), {"authorization": f"Bearer {gateway.key}"}

    async def chat(question: Question) -> dict[str, Any]:
        body = {
            "model": gateway.model,
            "messages": [{"role": "user", "content": question.prompt}],
            "metadata": {"bylot_expected": question.answer},
        }
        url = f"{gateway.base_url}/chat/completions"
        async with limit, session.post(url, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            return dict((await response.json())["bylot"])

    async with aiohttp.ClientSession() as session:
        return list(await asyncio.gather(*map(chat, questions)))


def play(folder: Path, recorded: RecordedTable, budget: float, seed: int, **gateway: Any) -> Play:
    """Send random questions to a gateway with a budget."""
    folder.mkdir()
    rng = random.Random(seed)
    questions = [rng.choice(recorded.questions) for _ in range(CHATS)]
    prices = {name: (one.prompt / 1e6, one.answer / 1e6) for name, one in PRICES.items()}
    options = {"scorer": ScorerEntry(exact={"extract": EXTRACT}), "answer": "pick", **gateway}
    problem = {**problem_to_data(recorded.make_problem(budget)), "period": PERIOD}
    with (
        ReplayUpstream(recorded.models, recorded, keep_requests=False) as upstream,
        start_gateway(
            folder, [upstream], problem=problem, prices=prices, seed=seed, **options
        ) as running,
    ):
        found = asyncio.run(chat_all(running, questions))
        wait_for_quiet(running)
        (limit,) = running.read("/v1/routers/panel/status")["limits"]
    found.sort(key=lambda one: int(one["decision"].split(".")[2]))
    return Play(
        [tuple(one["members"]) for one in found],
        np.array([max(one["scores"].values(), default=0.0) for one in found]),
        np.array([count_answers(one) for one in found]),
        np.array([one["cost_usd"] for one in found]),
        limit["current"]["missed"],
    )


def count_answers(details: dict[str, Any]) -> int:
    """How many members have answered."""
    return sum(one["status"] == "answered" for one in details["members"].values())


def find_highest_mean(dollars: Floats) -> float:
    """The mean of the most expensive period."""
    return float(dollars.reshape(-1, PERIOD).mean(axis=1).max())


@pytest.mark.slow
def test_the_gateway_learns_from_recorded_answers_within_its_budget(
    recorded: RecordedTable, references: References, tmp_path: Path
) -> None:
    """By the mean over seeds: what a panel is worth is known, which seed is lucky is not."""
    early, late, calls, lost = [], [], [], []
    budget = references.budget_usd
    for seed in range(1, SEEDS + 1):
        together, turns = (
            play(tmp_path / f"{ask}-{seed}", recorded, budget, seed, ask=ask)
            for ask in ("together", "in_turn")
        )
        worth = np.array([recorded.expect_score(panel) for panel in together.panels])
        early.append(worth[:PERIOD].mean() / references.mixture)
        late.append(worth.mean() / references.mixture)
        calls.append(turns.calls.mean())
        lost.append(together.scores.mean() - turns.scores.mean())
        highest = find_highest_mean(together.dollars) / budget
        print(
            f"\nseed {seed}: {early[-1]:.3f} {late[-1]:.3f} of the best mixture, highest period "
            f"{highest:.4f} of the budget; in turn {calls[-1]:.2f} calls, "
            f"{find_highest_mean(turns.dollars) / budget:.4f} of the budget, {lost[-1]:+.4f} lost"
        )
        assert together.missed == turns.missed == 0
        assert highest <= 1.0
    print(
        f"mean: {np.mean(early):.4f} {np.mean(late):.4f}; in turn {np.mean(calls):.3f} calls, "
        f"{np.mean(lost):+.4f} lost"
    )
    assert np.mean(early) >= 0.95
    assert np.mean(late) >= 0.98
    assert np.mean(calls) <= 1.7
    assert np.mean(lost) <= 0.005
