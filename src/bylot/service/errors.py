"""Every refusal in one shape: {"error": {"code", "message", "field"?}}.

What a caller did wrong is told; what we did wrong is logged under an id, and only the id is told.
"""

import logging
import math
import secrets
from http import HTTPStatus
from typing import NamedTuple

from msgspec import UNSET, Struct, UnsetType

from bylot import errors

log = logging.getLogger("bylot.service")


class Problem(Struct, frozen=True, omit_defaults=True):
    """What is wrong: a word for programs, a sentence for people, and where in the request."""

    code: str
    message: str
    field: str | UnsetType = UNSET


class Failure(Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: Problem


class Refusal(errors.BylotError):
    """A request that the HTTP edge turns away by itself."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        retry: float | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.field, self.retry = status, code, field, retry
        self.headers = headers


class Verdict(NamedTuple):
    """How a failure is answered; retry: seconds after which the same may succeed."""

    status: int
    failure: Failure
    retry: float | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


KNOWN: tuple[tuple[type[Exception], int, str, float | None], ...] = (
    (errors.NoSuchRouter, 404, "no_such_router", None),
    (errors.NoSuchDecision, 404, "no_such_decision", None),
    (errors.NameTaken, 409, "name_taken", None),
    (errors.RewardConflict, 409, "reward_conflict", None),
    (errors.NotNow, 409, "not_now", None),
    (errors.KeyReused, 422, "key_reused", None),
    (errors.InfeasibleLimits, 422, "infeasible_limits", None),
    (errors.ProblemError, 422, "bad_problem", None),
    (errors.PolicyError, 422, "bad_policy", None),
    (errors.DecisionError, 422, "bad_decision", None),
    (errors.RewardError, 422, "bad_reward", None),
    (errors.ValuesError, 422, "bad_values", None),
    (errors.StoreDown, 503, "store_down", 1.0),
    (errors.Fenced, 503, "router_busy", 1.0),
    (errors.RouterBusy, 503, "leased", None),  # it says for how long itself
)
"""Errors that have a meaning for the caller; the first that fits is told."""


def judge(error: Exception) -> Verdict:
    """The answer to a failure."""
    if isinstance(error, Refusal):
        problem = Problem(error.code, str(error), error.field or UNSET)
        return Verdict(error.status, Failure(problem), error.retry, error.headers)
    for kind, status, code, retry in KNOWN:
        if isinstance(error, kind):
            if isinstance(error, errors.RouterBusy):
                retry = error.seconds
            return Verdict(status, Failure(Problem(code, str(error))), retry)
    return unexpected(error)


def unexpected(error: Exception) -> Verdict:
    """Log what nobody foresaw; tell a damaged log by name, and of all else only where to look."""
    trace = secrets.token_hex(8)
    log.error("request failed: %s", error, exc_info=error, extra={"error_id": trace})
    if isinstance(error, errors.StoreDamaged):
        return Verdict(500, Failure(Problem("store_damaged", f"{error} (error {trace})")))
    message = f"the server failed; its log says more under error {trace}"
    return Verdict(500, Failure(Problem("internal_error", message)))


def nothing_here(path: str) -> Refusal:
    """There is nothing at this path."""
    message = f"there is nothing at {path[:200]!r}; /openapi.json lists what there is"
    return Refusal(404, "not_found", message)


def wrong_method(method: str, allowed: tuple[str, ...]) -> Refusal:
    """A path that does other things."""
    names = ", ".join(allowed)
    message = f"{method[:20]} is not done here; use {names}"
    return Refusal(405, "method_not_allowed", message, headers=((b"allow", names.encode()),))


def plain(status: int) -> Refusal:
    """A refusal about which no more is known than its status."""
    phrase = HTTPStatus(status).phrase
    return Refusal(status, phrase.lower().replace(" ", "_"), phrase)


def seconds(retry: float) -> bytes:
    """The value of Retry-After: whole seconds, at least one."""
    return str(max(1, math.ceil(retry))).encode()
