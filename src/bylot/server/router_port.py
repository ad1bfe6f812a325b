"""How the gateway reaches stored routers, and how decisions, reports and refusals are counted."""

from typing import Any

from bylot.errors import BudgetSpent, TenantError
from bylot.eventlog import commands
from bylot.server.http_errors import to_api_error
from bylot.server.metrics import ALL_REQUESTS, ServerMetrics
from bylot.server.writer import CommandRunner, Reader

BUDGET_SPENT_CODE, BAD_TENANT_CODE = "budget_spent", "bad_tenant"
BODY_REMEDY = "give `{scope}` in the body of the request"
GATEWAY_REMEDY = "send its name as header x-bylot-{scope}, or as metadata.bylot_{scope}"


class CommandPort:
    """`gateway.RouterPort` by the commands and the reader of a server."""

    def __init__(self, runner: CommandRunner, reader: Reader, metrics: ServerMetrics) -> None:
        self.runner, self.metrics = runner, metrics
        self.read = reader.read

    async def execute(self, command: commands.Command) -> Any:
        """The result of a command, counted, once it is on disk."""
        return await execute_counted(self.runner, self.metrics, command, GATEWAY_REMEDY)

    def can_retry(self, error: Exception) -> bool:
        """Whether the same command may succeed later."""
        return to_api_error(error).status == 503


async def execute_counted(
    runner: CommandRunner,
    metrics: ServerMetrics,
    command: commands.Command,
    key_remedy: str = BODY_REMEDY,
) -> Any:
    """The result of a command, once it is on disk; decisions, reports and refusals are counted.

    key_remedy: what to do if a decision names no tenant, and has to
    """
    (result,) = await runner.execute_all((command,))
    return count_result(metrics, command, result, key_remedy)


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
