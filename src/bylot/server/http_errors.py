"""Every error response has one shape: {"error": {"code", "message", "field"?, "resets_at"?}},
except for those of the gateway, which have OpenAI's.

Errors of the caller are explained to the caller. Errors of the server are logged under an id, and
the response contains only that id.
"""

import logging
import math
import secrets
from copy import copy

from msgspec import UNSET

from bylot import errors
from bylot.api import ERROR_CODES, ErrorBody, ErrorDetail
from bylot.eventlog.clock import CLOCK_JUMP_US
from bylot.eventlog.events import now_us
from bylot.gateway.chat import ChatError
from bylot.problem.instants import describe_reset

log = logging.getLogger("bylot.server")

RawHeaders = tuple[tuple[bytes, bytes], ...]


class ApiError(errors.BylotError):
    """An error with its HTTP status.

    retry_after: seconds until the request may succeed
    resets_at:   of a budget that is spent, the end of its window in microseconds since 1970
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        retry_after: float | None = None,
        headers: RawHeaders = (),
        *,
        resets_at: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field
        self.retry_after, self.extra_headers = retry_after, headers
        self.resets_at = resets_at

    @property
    def headers(self) -> RawHeaders:
        """Headers of the response, with Retry-After in whole seconds, at least one."""
        if self.retry_after is None:
            return self.extra_headers
        seconds = str(max(1, math.ceil(self.retry_after))).encode()
        return (*self.extra_headers, (b"retry-after", seconds))

    @property
    def body(self) -> ErrorBody:
        optional = self.field or UNSET, self.resets_at or UNSET
        return ErrorBody(ErrorDetail(self.code, str(self), *optional))


def invalid(field: str | None, message: str) -> ApiError:
    """The error about a request that is invalid, in a field or as a whole."""
    return ApiError(422, "invalid", message, field=field)


def unavailable(code: str, message: str) -> ApiError:
    """The error about a request that may succeed in a second."""
    return ApiError(503, code, message, retry_after=1.0)


PRIVATE_ERRORS: tuple[tuple[type[errors.BylotError], str], ...] = (
    (errors.StoreUnavailable, "the store is not available; the server log has the reason"),
    (errors.StoreCorrupted, "the router or its store is damaged; see the server log"),
    (errors.LeaseLost, "another server has taken over the router, or it was deleted; retry"),
    (
        errors.RouterBusy,
        "another server has the lease of this router; send requests there, or start all servers "
        "with --advertise, so that any of them answers",
    ),
)
"""Errors whose own messages name files, machines and processes; what the caller is told instead."""


def public_message(error: Exception) -> str:
    """The message of an error for the caller, who cannot raise a bound."""
    if isinstance(error, errors.BudgetSpent) and error.limit is not None:
        error = copy(error)
        error.remedy = describe_reset(error.resets_at, error.limit.zone)
    return next((text for kind, text in PRIVATE_ERRORS if isinstance(error, kind)), str(error))


def reset_by_clock(error: errors.BudgetSpent) -> errors.BudgetSpent:
    """Copy the error with the reset by the clock of the machine, if the time of the router is apart
    from it: after the clock was set back or forward, a router goes on by its own time.
    """
    now = error.resets_at - round(1e6 * (error.reset_s or 0.0))  # by the router's time
    apart = now_us() - now
    if error.reset_s is None or abs(apart) < CLOCK_JUMP_US:
        return error
    error = copy(error)
    error.resets_at += apart
    return error


def to_api_error(error: Exception) -> ApiError:
    """The response to any error."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, errors.BudgetSpent):
        error = reset_by_clock(error)
    for kind, status, code in ERROR_CODES:
        if isinstance(error, kind) and status != 500:
            retry_after = 1.0 if status == 503 else getattr(error, "reset_s", None)
            if status == 503:
                log.debug("request refused: %s", error)
            field, resets_at = (getattr(error, name, None) for name in ("field", "resets_at"))
            return ApiError(
                status, code, public_message(error), field, retry_after, resets_at=resets_at
            )
    error_id = secrets.token_hex(8)
    log.error("request failed: %s", error, exc_info=error, extra={"error_id": error_id})
    if isinstance(error, errors.StoreCorrupted):
        return ApiError(500, "store_damaged", f"{public_message(error)}, error {error_id}")
    return ApiError(
        500, "internal_error", f"internal server error; see the server log, error {error_id}"
    )


def to_chat_error(error: Exception) -> ChatError:
    """The response to any error of the gateway, in OpenAI's envelope."""
    if isinstance(error, ChatError):
        return error
    found = to_api_error(error)
    status = 400 if found.status == 422 else found.status
    code = "invalid_api_key" if status == 401 else found.code
    return ChatError(status, code, str(found), found.field, found.retry_after)
