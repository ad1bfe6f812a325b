"""How the gateway reaches stored routers: commands to their owner, configurations by the reader."""

from collections.abc import Iterable, Mapping
from typing import Any

from bylot.api import DecisionRecord
from bylot.errors import BudgetSpent, NoSubstitute, RouterNotFound, TenantError
from bylot.eventlog import commands
from bylot.eventlog.events import BODY_DECODERS, EVENT_KINDS
from bylot.eventlog.loading import read_stored_config
from bylot.gateway.settlement import HOLDER, RouterFacts
from bylot.limits.keys import NO_KEYS, KeyNames
from bylot.router.changes import RewardReceived
from bylot.router.config import RouterConfig
from bylot.router.decision import Decision
from bylot.server.http_errors import to_api_error
from bylot.server.metrics import ALL_REQUESTS, ServerMetrics
from bylot.server.writer import CommandRunner, Reader
from bylot.store import Event, Store

BUDGET_SPENT_CODE, BAD_TENANT_CODE = "budget_spent", "bad_tenant"
MAX_REWARDS_READ = 1_000  # for the scores of members
BODY_REMEDY = "give `{scope}` in the body of the request"
GATEWAY_REMEDY = "send its name as header x-bylot-{scope}, or as metadata.bylot_{scope}"


class CommandPort:
    """`gateway.RouterPort` by the commands of a server; its decisions are held by the gateway."""

    def __init__(self, runner: CommandRunner, reader: Reader, metrics: ServerMetrics) -> None:
        self.runner, self.reader, self.metrics = runner, reader, metrics

    async def describe(self, router: str, cost_name: str) -> RouterFacts:
        """Experts, declared costs and feedback of a router."""

        def read(store: Store) -> RouterConfig | None:
            row = store.find(router)
            return None if row is None else read_stored_config(store, row)

        config = await self.reader.read(read)
        if config is None:
            raise RouterNotFound(f"no router named {router!r}", remedy="create it")
        problem = config.problem
        experts = tuple(problem["experts"])
        declared = problem["costs"].get(cost_name) or ()
        costs = dict(zip(experts, declared, strict=False))
        return RouterFacts(config.version, experts, costs, config.feedback, config.rewards)

    async def read_scores(
        self, router: str, rewards: tuple[float, float]
    ) -> dict[str, list[float]]:
        """Return the last scores in [0, 1] by expert that scorers have reported."""

        def read(store: Store) -> list[Event]:
            row = store.find(router)
            kind = EVENT_KINDS[RewardReceived]
            return [] if row is None else store.latest(row.number, kind, MAX_REWARDS_READ)

        return list_scores(await self.reader.read(read), rewards)

    async def decide(
        self,
        context: str | None,
        router: str,
        available: list[str] | None,
        by: str | None,
        keys: KeyNames = NO_KEYS,
    ) -> Decision:
        """A decision, once it is on disk; TooManyContexts if there is no room for a new one."""
        names = None if available is None else tuple(available)
        command = commands.MakeDecision(router, context, names, keys=keys, by=by, holder=HOLDER)
        return await make_decision(self.runner, self.metrics, command, GATEWAY_REMEDY)

    async def replace(
        self, id: str, failed: str, available: list[str] | None, by: str | None
    ) -> Decision | None:
        """The decision with a substitute for a member that failed; None if there is none."""
        names = None if available is None else tuple(available)
        try:
            decision: Decision = await self.runner.execute(
                commands.ReplaceMember(id, failed, names, by=by, holder=HOLDER)
            )
        except NoSubstitute:
            return None
        return decision

    async def report(self, id: str, report: Mapping[str, Any], by: str | None) -> None:
        """Report scores and costs, once."""
        command = commands.RecordReward(id, **{"value": None, **report}, by=by, holder=HOLDER)
        self.metrics.count(await self.runner.execute(command))

    async def cancel(self, id: str, by: str | None) -> None:
        """Take back a decision of which no member was asked."""
        await self.runner.execute(commands.CancelDecision(id, by=by, holder=HOLDER))

    async def find_panel(self, id: str) -> tuple[str, ...]:
        """The members of a decision, as the log has them."""
        found: DecisionRecord = await self.runner.execute(commands.GetDecision(id))
        return found.decision.subset

    def can_retry(self, error: Exception) -> bool:
        """Whether the same command may succeed later."""
        return to_api_error(error).status == 503


def list_scores(events: Iterable[Event], rewards: tuple[float, float]) -> dict[str, list[float]]:
    """Return the scores in [0, 1] by member that scorers of gateways have reported."""
    low, high = rewards
    found: dict[str, list[float]] = {}
    for event in events:
        body: RewardReceived = BODY_DECODERS[event.kind](event.body)
        if body.members and (body.key or "").startswith(f"{HOLDER}/"):
            for name, score in body.members.items():
                found.setdefault(name, []).append((score - low) / (high - low))
    return found


async def make_decision(
    runner: CommandRunner,
    metrics: ServerMetrics,
    command: commands.MakeDecision,
    key_remedy: str = BODY_REMEDY,
) -> Decision:
    """A decision, once it is on disk; it is counted, and so is a request that is refused.

    key_remedy: what to do if it names no tenant, and has to
    """
    (result,) = await runner.execute_all((command,))
    decision: Decision = count_result(metrics, command, result, key_remedy)
    return decision


def count_result(
    metrics: ServerMetrics, command: commands.Command, result: Any, key_remedy: str = BODY_REMEDY
) -> Any:
    """The result of a command, counted; raises its error."""
    if isinstance(result, Exception):
        count_failure(metrics, command, result)
        raise explain_missing_key(command, result, key_remedy)
    if isinstance(command, commands.MakeDecision | commands.RecordReward):
        metrics.count(result)
    return result


def explain_missing_key(
    command: commands.Command, error: Exception, remedy: str = BODY_REMEDY
) -> Exception:
    """Return the error of a command; if a decision lacks a key, it says where to name one."""
    scope = getattr(error, "field", None)
    missing = isinstance(command, commands.MakeDecision) and scope not in command.keys
    if scope is None or not missing or to_api_error(error).code != BAD_TENANT_CODE:
        return error
    what = f"router {command.name!r} has limits for each {scope}, and the request names none"
    return TenantError(what, remedy=remedy.format(scope=scope))


def count_failure(metrics: ServerMetrics, command: commands.Command, error: Exception) -> None:
    """Count a request that was refused as a budget is spent, here or on the router's server."""
    spent = isinstance(error, BudgetSpent) or getattr(error, "code", None) == BUDGET_SPENT_CODE
    if spent and isinstance(command, commands.MakeDecision):
        metrics.count_refused(command.name, getattr(error, "field", None) or ALL_REQUESTS)
