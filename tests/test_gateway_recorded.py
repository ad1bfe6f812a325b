"""The gateway learns whom to ask from recorded answers of ten real models, within a budget.

BYLOT_RECORDED_CHATS sets how many requests are sent; the slow test sends 5,000.
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
from bylot.router.persistence import problem_to_data
from gateway_target import RunningGateway, start_gateway
from recorded_answers import EXTRACT, PRICES, Question, find_recorded_file
from recorded_optima import RecordedTable, References, read_recorded_table
from upstreams import ReplayUpstream

CHATS = int(os.environ.get("BYLOT_RECORDED_CHATS", "5000"))
CONCURRENT = 4


class Play(NamedTuple):
    """What became of requests: the panels that were drawn, scores, calls and dollars."""

    panels: list[tuple[str, ...]]
    scores: list[float]
    calls: list[int]
    dollars: list[float]
    status: dict[str, Any]


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
    rng = random.Random(seed)
    questions = [rng.choice(recorded.questions) for _ in range(CHATS)]
    prices = {name: price / 1e6 for name, price in PRICES.items()}
    options = {"scorer": ScorerEntry(exact={"extract": EXTRACT}), "answer": "pick", **gateway}
    problem = {**problem_to_data(recorded.make_problem(budget)), "period": 1_000}
    with (
        ReplayUpstream(recorded.models, recorded, keep_requests=False) as upstream,
        start_gateway(
            folder, [upstream], problem=problem, prices=prices, seed=seed, **options
        ) as running,
    ):
        found = asyncio.run(chat_all(running, questions))
        status = running.read("/v1/routers/panel/status")
    return Play(
        [tuple(one["members"]) for one in found],
        [max(one["scores"].values(), default=0.0) for one in found],
        [sum(m["status"] == "answered" for m in one["members"].values()) for one in found],
        [one["cost_usd"] for one in found],
        status,
    )


@pytest.mark.slow
def test_the_gateway_learns_from_recorded_answers_within_its_budget(
    recorded: RecordedTable, references: References, tmp_path: Path
) -> None:
    together = play(tmp_path, recorded, references.budget_usd, seed=1)
    worth = np.array([recorded.expect_score(panel) for panel in together.panels])
    print("together", worth[:1000].mean() / references.mixture, worth.mean() / references.mixture)
    print("realised", np.mean(together.scores), "dollars", np.mean(together.dollars))
    assert worth[:1000].mean() >= 0.95 * references.mixture
    assert worth.mean() >= 0.98 * references.mixture
    for limit in together.status["limits"]:
        assert limit["periods_missed"] == 0 if "periods_missed" in limit else True
    folder = tmp_path / "in_turn"
    folder.mkdir()
    turns = play(folder, recorded, references.budget_usd, seed=1, ask="in_turn")
    print("in turn", np.mean(turns.calls), np.mean(turns.scores), np.mean(turns.dollars))
    assert np.mean(turns.calls) <= 1.7
    assert np.mean(turns.scores) >= np.mean(together.scores) - 0.005
