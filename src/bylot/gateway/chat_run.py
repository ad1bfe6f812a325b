"""One chat request: decide, ask the panel, score the answers, answer, settle.

The decision is on disk before the first member is asked. However the request ends, the decision is
settled once, by work that the gateway finishes even if the caller has gone.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from bylot.api import DecisionRecord
from bylot.errors import TooManyContexts
from bylot.eventlog.commands import CancelDecision, GetDecision, MakeDecision, ReplaceMember
from bylot.gateway.answers import NO_USAGE, Answer, Failure, ScorerError, Usage, Verdict
from bylot.gateway.asking import PanelResult, PanelRun
from bylot.gateway.chat import ChatError, ChatRequest, Completion, make_completion
from bylot.gateway.check_process import CALLER
from bylot.gateway.config import MAX_MEMBERS
from bylot.gateway.gateway import RouterGateway, log
from bylot.gateway.judge import Judge
from bylot.gateway.settlement import HOLDER, RouterFacts, compute_spend, make_report
from bylot.gateway.upstream import CALLER_STATUSES, ChatBody
from bylot.limits.keys import NO_KEYS, KeyNames
from bylot.router.decision import Decision

MAX_REASON_CHARS = 200  # of a scorer that failed


class ChatRun:
    """The state of one request.

    knows_cost: the costs of all members are known when the response begins
    scorer_fault: why no answer has a score; None: the scorer has not failed
    refused_by: the member that was asked alone and refused; None: there is none
    """

    facts: RouterFacts
    decision: Decision
    knows_cost = True

    def __init__(
        self,
        route: RouterGateway,
        request: ChatRequest,
        context: str | None,
        by: str | None,
        keys: KeyNames = NO_KEYS,
    ) -> None:
        self.route, self.request, self.context, self.by = route, request, context, by
        self.keys = keys
        self.entry, self.port = route.entry, route.gateway.port
        allowed = {
            name: value for name, value in request.body.items() if name in self.entry.pass_fields
        }
        self.body = ChatBody({**request.fields, **allowed})
        self.result = PanelResult([], [], {})
        self.scores: dict[str, float] = {}
        self.verdict: Verdict | None = None
        self.scorer_fault: str | None = None
        self.refused_by: str | None = None
        self.judge_cost, self.judge_usage = 0.0, NO_USAGE
        self.quorum_missed = False
        self.replacing: asyncio.Task[None] | None = None
        self.scoring: asyncio.Task[None] | None = None
        self.winner: str | None = None

    async def complete(self) -> Completion:
        """The completion of this request; the panel is settled before it is returned, unless it
        is still to be scored.
        """
        await self.decide()
        try:
            await self.ask_panel()
            if await self.draw_again(self.result.failures):
                await self.ask_panel()
            if not self.result.answers:
                raise explain_failures(self.result.failures)
            if not self.scores_later and (self.entry.ask != "in_turn" or self.writes_answer):
                self.scoring = self.route.gateway.spawn(self.score(self.result.answers))
                await asyncio.shield(self.scoring)  # it is paid for, so that it is learned from
            return self.make_completion()
        finally:
            await self.settle()

    @property
    def scores_later(self) -> bool:
        """Whether answers are scored after the caller has one, which no score can change."""
        is_first = self.entry.answer == "first" and self.entry.ask != "in_turn"
        return is_first and self.route.scorer is not None

    @property
    def writes_answer(self) -> bool:
        """Whether a judge writes the answer."""
        return self.entry.answer == "synthesise"

    async def decide(self) -> None:
        """Make the decision. If the caller goes away meanwhile, it is cancelled."""
        await self.route.load_facts()
        decision, facts = await self.draw()
        if not all(name in self.route.gateway.client.models for name in decision.subset):
            await self.port.execute(self.make_cancel(decision))  # an edit has just added experts
            decision, facts = await self.draw()
        if len(decision.subset) > MAX_MEMBERS:
            await self.port.execute(self.make_cancel(decision))
            raise ChatError(
                500,
                "panel_too_large",
                f"the panel has more than {MAX_MEMBERS} members; lower the router's draws",
            )
        self.decision, self.facts = decision, facts  # last: from here on it must be settled

    async def draw(self) -> tuple[Decision, RouterFacts]:
        """A decision among the experts that can be asked, and what is known of the router."""
        task = self.route.gateway.spawn(self.decide_on_disk(self.list_available()))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.route.gateway.spawn(self.cancel_unused(task))
            raise

    async def decide_on_disk(
        self, available: tuple[str, ...] | None
    ) -> tuple[Decision, RouterFacts]:
        """A decision, and what is known of the router at its version or a later one."""
        router = self.route.router
        command = MakeDecision(
            router, self.context, available, keys=self.keys, by=self.by, holder=HOLDER
        )
        try:
            decision = await self.port.execute(command)
        except TooManyContexts as error:
            if not self.route.stats.without_context:  # there may be one in every request
                warning = "requests of %s are served without their contexts, and counted: %s"
                log.warning(warning, router, error)
            self.route.stats.without_context += 1
            self.context = None
            decision = await self.port.execute(structs.replace(command, context=None))
        return decision, await self.load_facts(decision.version)

    async def load_facts(self, version: int | None) -> RouterFacts:
        """What is known of the router; of an older version if the store cannot be read now."""
        try:
            return await self.route.load_facts(version)
        except Exception as error:
            log.warning("router %s cannot be read: %s", self.route.router, error)
            assert self.route.facts is not None  # loaded before the decision
            return self.route.facts

    async def cancel_unused(self, task: "asyncio.Task[tuple[Decision, RouterFacts]]") -> None:
        """Cancel a decision whose caller has gone before a member was asked."""
        await asyncio.wait([task])
        if task.exception() is None:
            await self.cancel(task.result()[0])

    async def cancel(self, decision: Decision) -> None:
        """Cancel a decision that cost nothing, or settle it at 0 if a caller has rewarded it."""
        facts, gateway = self.route.facts, self.route.gateway
        cancelled = await gateway.persist(self.make_cancel(decision))
        if not cancelled and facts is not None and facts.declared:
            spend = {self.entry.cost: dict.fromkeys(decision.subset, 0.0)}
            await gateway.report(decision.id, {"key": HOLDER, "spend": spend}, self.by)

    def make_cancel(self, decision: Decision) -> CancelDecision:
        """The command that takes back a decision of which no member was asked."""
        return CancelDecision(decision.id, by=self.by, holder=HOLDER)

    async def draw_again(self, failures: Sequence[Failure]) -> bool:
        """Draw another panel if only one member was asked, which has refused the request, and none
        could take its place within the limits; return whether there is one.
        """
        if len(failures) != 1 or failures[0].status not in CALLER_STATUSES or self.result.answers:
            return False
        self.refused_by = failures[0].member
        if self.entry.refill == 0 or not self.list_available():
            return False
        before = self.decision
        await asyncio.shield(self.route.gateway.spawn(self.cancel(before)))
        try:
            await self.decide()
        except Exception as error:
            log.warning("decision %s: no other panel was drawn: %s", before.id, error)
            return False
        return True

    def list_available(self) -> tuple[str, ...] | None:
        """The experts that can be asked now; None: all."""
        facts, models = self.route.facts, self.route.gateway.client.models
        experts = facts.experts if facts else ()
        known = [name for name in experts if name in models]  # an edit may have added others
        found = self.route.health.list_available(known)
        if self.refused_by is not None:
            return tuple(name for name in found or known if name != self.refused_by)
        if found is None and len(known) == len(experts):
            return None
        return tuple(found or known)

    async def ask_panel(self) -> None:
        """Ask the members of the decision."""
        members: Sequence[str] = self.decision.subset
        is_good = None
        if self.entry.ask != "together":
            members = self.route.stats.order_by_score(members)
        if self.entry.ask == "in_turn":
            is_good = self.is_good
        client, health = self.route.gateway.client, self.route.health
        run = PanelRun(self.entry, client, health, self.body, members, self.replace, is_good)
        run.result.failures.extend(self.result.failures)  # of a panel before this one
        self.result = run.result  # also if it is cancelled
        await run.run()
        self.quorum_missed = run.quorum_missed

    async def replace(self, failed: str) -> str | None:
        """Replace a member that failed by another one; None if that is not possible."""
        before = set(self.decision.subset)
        self.replacing = self.route.gateway.spawn(self.replace_on_disk(failed))
        await asyncio.shield(self.replacing)  # the panel changes even if the caller leaves now
        models = self.route.gateway.client.models
        added = [name for name in self.decision.subset if name not in before and name in models]
        return added[0] if added else None

    async def replace_on_disk(self, failed: str) -> None:
        """Replace a member in the log, and here: the settlement must name the panel of the log."""
        before, available = self.decision, self.list_available()
        command = ReplaceMember(before.id, failed, available, by=self.by, holder=HOLDER)
        try:
            decision = await self.route.gateway.substitute(command)
        except Exception as error:
            log.warning("decision %s: %s was not replaced: %s", before.id, failed, error)
            return
        if decision is not None:
            self.decision = decision
            for added in set(decision.subset) - set(before.subset):
                self.result.stands_for[added] = failed

    async def is_good(self, answer: Answer) -> bool:
        """Score one answer of several in turn."""
        self.scoring = self.route.gateway.spawn(self.score([answer], writes=False))
        await asyncio.shield(self.scoring)
        return self.scores.get(answer.member, 0.0) >= self.entry.good_score

    async def score(self, answers: Sequence[Answer], writes: bool = True) -> None:
        """Score answers; without a scorer, or if it fails, they have no scores.

        writes: a judge that is to write the answer does so now
        """
        scorer = self.route.scorer
        if scorer is None:
            return
        CALLER.set(self.by)
        try:
            if writes and self.writes_answer and isinstance(scorer, Judge):
                verdict = await scorer.synthesise(self.request.body, answers)
            else:
                verdict = await scorer.score(self.request.body, answers)
        except ScorerError as error:
            log.warning("decision %s has no scores: %s", self.decision.id, error)
            self.add_judge(error.cost, error.usage)
            self.fail_scoring(error.reason)
            return
        except Exception as error:  # a fault of ours, or of a plug-in: the answers are still good
            log.error("decision %s has no scores", self.decision.id, exc_info=error)
            self.fail_scoring("an unexpected error")
            return
        self.add_judge(verdict.cost, verdict.usage)
        self.scores |= verdict.scores
        self.verdict = verdict
        self.scorer_fault = None

    def fail_scoring(self, reason: str) -> None:
        """Count that answers have no scores; others, in turn, may have some."""
        self.route.stats.unscored += 1
        if not self.scores:
            self.scorer_fault = reason[:MAX_REASON_CHARS]

    def add_judge(self, cost: float, usage: Usage) -> None:
        """Add what a judge cost; it may be asked several times."""
        self.judge_cost += cost
        self.judge_usage += usage

    def choose_winner(self) -> Answer:
        """Return the answer with the highest score, the first of several, or without scores that of
        the member with the best earlier ones.
        """
        answers, in_turn = self.result.answers, self.entry.ask == "in_turn"
        if self.entry.answer == "first" and not in_turn:
            return answers[0]
        named = None if self.verdict is None or in_turn else self.verdict.winner
        if not self.scores and named is None:
            by_member = {answer.member: answer for answer in answers}
            return by_member[self.route.stats.order_by_score(list(by_member))[0]]
        return max(
            answers, key=lambda one: (self.scores.get(one.member, -1.0), one.member == named)
        )

    def make_completion(self) -> Completion:
        """The completion as the gateway is configured to answer."""
        best = self.choose_winner()
        self.winner = best.member
        choices: list[Mapping[str, Any]] = [best.choice]
        written = None if self.verdict is None else self.verdict.text
        if self.entry.answer == "all":
            answers = sorted(self.result.answers, key=lambda answer: answer.member != best.member)
            choices = [answer.choice for answer in answers]
        elif self.writes_answer and written is not None:
            message = {"role": "assistant", "content": written}
            choices = [{"message": message, "logprobs": None, "finish_reason": "stop"}]
        return make_completion(choices, self.usage, self.details)

    @property
    def usage(self) -> Usage:
        """Tokens of all members and of the judge."""
        total = self.judge_usage
        for one in self.result.calls:
            total += one.usage
        return total

    @property
    def spend(self) -> dict[str, float]:
        """Dollars by member of the panel."""
        return compute_spend(self.decision.subset, self.result, self.judge_cost, self.facts)

    @property
    def details(self) -> dict[str, Any]:
        """The object `bylot` of the response."""
        spend = self.spend
        calls = {one.member: one for one in self.result.calls}
        return {
            "decision": self.decision.id,
            "policy_version": self.decision.version,
            "context": self.context,
            "members": {
                name: describe_member(calls.get(name), spend[name], self.scores.get(name))
                for name in self.decision.subset
            },
            "winner": self.winner,
            "scores": self.scores,
            "scorer": self.scorer_state,
            "not_sent": self.request.list_unsent(self.entry.pass_fields),
            "cost_usd": sum(spend.values()),
        }

    @property
    def scorer_state(self) -> str | None:
        """Name the scorer whose scores count, or say why there are none; None: none yet."""
        if self.scorer_fault is not None:
            return f"failed: {self.scorer_fault}"
        return None if self.verdict is None else self.verdict.source

    async def settle(self) -> None:
        """Report scores and costs; the answer waits for it a while only, and not for a scorer."""
        if self.result.answers:
            self.route.health.blame_refusals(self.result.failures)
        task = self.route.gateway.spawn(self.report_and_count())
        if not self.scores_later:
            await asyncio.wait([task], timeout=2.0)

    async def report_and_count(self) -> None:
        """Report, and count whether that succeeded."""
        settled = False
        if work := [one for one in (self.replacing, self.scoring) if one is not None]:
            await asyncio.wait(work)  # the caller may have left meanwhile
        if self.scores_later and self.result.answers:
            async with self.route.gateway.scoring_slots:
                await self.score(self.result.answers)
        try:
            settled = await self.report()
        except Exception as error:
            log.error("decision %s was not settled", self.decision.id, exc_info=error)
        finally:
            self.route.stats.settlements += settled
            self.route.stats.settlement_failures += not settled

    async def report(self) -> bool:
        """Count the panel, and report it to the router; return whether the report is on disk."""
        stats = self.route.stats
        verdict = self.verdict
        if verdict is not None:
            verdict = Verdict(scores=self.scores, source=verdict.source, winner=self.winner)
        stats.add_panel(self.result, self.spend, verdict)
        stats.quorum_misses += self.quorum_missed
        stats.unanswered += not self.result.answers
        failed = not self.result.answers and any(  # through no fault of the request or its caller
            failure.reason != "cancelled" and failure.status not in CALLER_STATUSES
            for failure in self.result.failures
        )
        self.route.note_panel(failed=failed, scored=self.scorer_fault is None)
        if self.winner is not None and (self.scorer_fault is None or self.scores_later):
            stats.members[self.winner].won += 1
        if self.entry.keep_prompts:
            self.log_texts()
        given = self.result, verdict, self.judge_cost, self.facts, self.entry.cost
        members: Sequence[str] = self.decision.subset
        for _ in range(2):
            report = make_report(members, *given)
            if await self.route.gateway.report(self.decision.id, report, self.by):
                return True
            stored: DecisionRecord = await self.port.execute(GetDecision(self.decision.id))
            if set(stored.decision.subset) == set(members):
                break
            members = stored.decision.subset  # one was replaced, and the answer to that was lost
        return False

    def log_texts(self) -> None:
        """Log prompt and answers, which `keep_prompts` allows."""
        log.info(
            "chat",
            extra={
                "router": self.route.router,
                "decision": self.decision.id,
                "messages": self.request.body.get("messages"),
                "answers": {one.member: one.choice["message"] for one in self.result.answers},
                "winner": self.winner,
            },
        )


def describe_member(
    call: Answer | Failure | None, cost: float, score: float | None
) -> dict[str, Any]:
    """A member of the panel in the object `bylot`."""
    status = "not_asked" if call is None else "answered"
    if isinstance(call, Failure):
        status = call.reason
    usage = call.usage if call else NO_USAGE
    return {
        "status": status,
        "seconds": None if call is None else round(call.seconds, 4),
        "cost_usd": cost,
        "score": score,
        "tokens": usage.total_tokens,
    }


def explain_failures(failures: Sequence[Failure]) -> ChatError:
    """The error if no member has answered. Texts of models are only passed on if they say what is
    wrong with the request: others may contain secrets.
    """
    asked = [one for one in failures if one.reason != "cancelled"] or list(failures)
    refused = [one for one in asked if one.status in CALLER_STATUSES]
    if asked and len(refused) == len(asked):
        return relay_error(refused[0])
    reasons = ", ".join(f"{one.member}: {one.reason}" for one in asked)
    message = f"no member of the panel answered ({reasons or 'none was asked'})"
    if asked and all(one.reason == "rate_limited" for one in asked):
        waits = [one.retry_after_s or 1.0 for one in asked]
        return ChatError(429, "rate_limited", message, retry_after_s=min(waits))
    if asked and all(one.reason == "timeout" for one in asked):
        return ChatError(504, "timeout", message)
    return ChatError(502, "no_answer", message, retry_after_s=1.0)


def relay_error(failure: Failure) -> ChatError:
    """What a model said about a wrong request."""
    error = failure.error
    message = error.get("message", "the models refused the request")[:2_000]
    code, param = (error[name][:100] if name in error else None for name in ("code", "param"))
    return ChatError(failure.status or 400, code, message, param, is_relayed=True)
