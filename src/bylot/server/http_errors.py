"""Every refusal in one shape: {"error": {"code", "message", "field"?}}.

What a caller did wrong is told; what we did wrong is logged under an id, and only the id is told.
"""

import logging
import math
import secrets
from http import HTTPStatus
from typing import NamedTuple

from msgspec import UNSET

from bylot import errors
from bylot.api import ErrorBody, ErrorDetail

log = logging.getLogger("bylot.server")


class ApiError(errors.BylotError):
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


class ErrorAnswer(NamedTuple):
    """How a failure is answered; retry: seconds after which the same may succeed."""

    status: int
    failure: ErrorBody
    retry: float | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


ERROR_TABLE: tuple[tuple[type[Exception], int, str, float | None], ...] = (
    (errors.RouterNotFound, 404, "no_such_router", None),
    (errors.DecisionNotFound, 404, "no_such_decision", None),
    (errors.RouterExists, 409, "name_taken", None),
    (errors.RewardConflict, 409, "reward_conflict", None),
    (errors.DecisionStateError, 409, "not_now", None),
    (errors.IdempotencyKeyReused, 422, "key_reused", None),
    (errors.InfeasibleLimits, 422, "infeasible_limits", None),
    (errors.ProblemError, 422, "bad_problem", None),
    (errors.PolicyError, 422, "bad_policy", None),
    (errors.DecisionError, 422, "bad_decision", None),
    (errors.RewardError, 422, "bad_reward", None),
    (errors.ValuesError, 422, "bad_values", None),
    (errors.StoreUnavailable, 503, "store_down", 1.0),
    (errors.LeaseLost, 503, "router_busy", 1.0),
    (errors.RouterBusy, 503, "leased", None),  # it says for how long itself
)
"""Errors that have a meaning for the caller; the first that fits is told."""


def classify_error(error: Exception) -> ErrorAnswer:
    """The answer to a failure."""
    if isinstance(error, ApiError):
        problem = ErrorDetail(error.code, str(error), error.field or UNSET)
        return ErrorAnswer(error.status, ErrorBody(problem), error.retry, error.headers)
    for kind, status, code, retry in ERROR_TABLE:
        if isinstance(error, kind):
            if isinstance(error, errors.RouterBusy):
                retry = error.seconds
            return ErrorAnswer(status, ErrorBody(ErrorDetail(code, str(error))), retry)
    return log_unexpected_error(error)


def log_unexpected_error(error: Exception) -> ErrorAnswer:
    """Log what nobody foresaw; tell a damaged log by name, and of all else only where to look."""
    trace = secrets.token_hex(8)
    log.error("request failed: %s", error, exc_info=error, extra={"error_id": trace})
    if isinstance(error, errors.StoreCorrupted):
        return ErrorAnswer(500, ErrorBody(ErrorDetail("store_damaged", f"{error} (error {trace})")))
    message = f"the server failed; its log says more under error {trace}"
    return ErrorAnswer(500, ErrorBody(ErrorDetail("internal_error", message)))


def path_not_found(path: str) -> ApiError:
    """There is nothing at this path."""
    message = f"there is nothing at {path[:200]!r}; /openapi.json lists what there is"
    return ApiError(404, "not_found", message)


def method_not_allowed(method: str, allowed: tuple[str, ...]) -> ApiError:
    """A path that does other things."""
    names = ", ".join(allowed)
    message = f"{method[:20]} is not done here; use {names}"
    return ApiError(405, "method_not_allowed", message, headers=((b"allow", names.encode()),))


def plain_http_error(status: int) -> ApiError:
    """A refusal about which no more is known than its status."""
    phrase = HTTPStatus(status).phrase
    return ApiError(status, phrase.lower().replace(" ", "_"), phrase)


def retry_after_value(retry: float) -> bytes:
    """The value of Retry-After: whole seconds, at least one."""
    return str(max(1, math.ceil(retry))).encode()
