"""Decisions and their rewards over HTTP."""

from collections.abc import Sequence
from typing import Any

from bylot.durable.commands import Activate, Cancel, Credited, Decide, Recall, Reward
from bylot.errors import Fenced, RouterBusy, StoreDown
from bylot.service import limits
from bylot.service.credentials import Caller
from bylot.service.endpoint import Answer, Call, told
from bylot.service.errors import Refusal, judge, seconds
from bylot.service.state import Service
from bylot.service.types import (
    AskBatch,
    AskForm,
    BatchReward,
    DecisionResult,
    DecisionResults,
    RewardBatch,
    RewardForm,
    RewardResult,
    RewardResults,
)


async def decide(call: Call[AskForm, None]) -> Answer:
    """Draw a panel for one request; it is on disk before the answer leaves."""
    ask, name = call.form, limits.router(call.about)
    key = limits.key(call.headers.get(b"idempotency-key"), ask.key)
    command = Decide(name, ask.context, ask.available, key, ask.defer, call.who.id)
    decision = await call.service.desk.ask(command)
    count_decision(call.service, name)
    return told(201, decision)


async def decide_all(call: Call[AskBatch, None]) -> Answer:
    """Draw panels for several requests; each succeeds or fails alone."""
    service, name, asks = call.service, limits.router(call.about), call.form.decisions
    service.rates.take(call.who.id, len(asks) - 1)
    if b"idempotency-key" in call.headers:
        message = "in a batch every item has its own key; leave the header out"
        raise Refusal(422, "invalid", message, field="Idempotency-Key")
    answers = await service.desk.ask_all(
        [Decide(name, ask.context, ask.available, ask.key, ask.defer, call.who.id) for ask in asks]
    )
    results = DecisionResults(tuple(decided(service, name, one) for one in answers))
    return together(results, answers)


def together(results: DecisionResults | RewardResults, answers: Sequence[Any]) -> Answer:
    """A batch, and after how many seconds those of its items may succeed that failed for now."""
    done = told(200, results)
    passing = [one for one in answers if isinstance(one, StoreDown | RouterBusy | Fenced | Refusal)]
    waits = [verdict.retry for verdict in map(judge, passing) if verdict.retry is not None]
    if not waits:
        return done
    return done._replace(headers=(*done.headers, (b"retry-after", seconds(max(waits)))))


def decided(service: Service, name: str, answer: Any) -> DecisionResult:
    """One item of a batch."""
    if isinstance(answer, Exception):
        verdict = judge(answer)
        return DecisionResult(verdict.status, error=verdict.failure.error)
    count_decision(service, name)
    return DecisionResult(201, answer)


def count_decision(service: Service, name: str) -> None:
    """One decision more."""
    service.meters.decisions.inc()
    service.meters.touch(name)


async def reward(call: Call[RewardForm, None]) -> Answer:
    """Tell how well a decision went: once, at any time, in any order."""
    form, id = call.form, limits.decision(call.about)  # noqa: A001
    command = Reward(id, form.value, form.spend, form.key, call.who.id)
    credited = await call.service.desk.ask(command)
    count_reward(call.service, credited)
    return told(200, credited)


async def reward_all(call: Call[RewardBatch, None]) -> Answer:
    """Tell how well several decisions went; each succeeds or fails alone."""
    service, items = call.service, call.form.rewards
    service.rates.take(call.who.id, len(items) - 1)
    commands = [addressed(item, call.who) for item in items]
    answers = iter(await service.desk.ask_all([c for c in commands if isinstance(c, Reward)]))
    results = [next(answers) if isinstance(c, Reward) else c for c in commands]
    return together(RewardResults(tuple(rewarded(service, one) for one in results)), results)


def addressed(item: BatchReward, who: Caller) -> Reward | Exception:
    """One item of a batch, or why it cannot be taken up."""
    try:
        id = limits.decision(item.decision)  # noqa: A001
        who.check("reward", id.partition(".")[0])
    except Exception as error:
        return error
    return Reward(id, item.value, item.spend, item.key, who.id)


def rewarded(service: Service, answer: Any) -> RewardResult:
    """One item of a batch."""
    if isinstance(answer, Exception):
        verdict = judge(answer)
        return RewardResult(verdict.status, error=verdict.failure.error)
    count_reward(service, answer)
    return RewardResult(200, answer)


def count_reward(service: Service, credited: Credited) -> None:
    """One reward more."""
    service.meters.rewards[credited.receipt].inc()
    service.meters.touch(credited.decision.partition(".")[0])


async def recall(call: Call[None, None]) -> Answer:
    """A decision, and what became of it."""
    return told(200, await call.service.desk.ask(Recall(limits.decision(call.about))))


async def activate(call: Call[None, None]) -> Answer:
    """A deferred decision is being used after all: the time for its reward begins."""
    command = Activate(limits.decision(call.about), call.who.id)
    return told(200, await call.service.desk.ask(command))


async def cancel(call: Call[None, None]) -> Answer:
    """A decision was never used: it costs nothing and has no reward."""
    command = Cancel(limits.decision(call.about), call.who.id)
    return told(200, await call.service.desk.ask(command))
