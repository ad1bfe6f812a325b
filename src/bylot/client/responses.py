"""What a server answers, and what that is in the words of `bylot.Router`."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylot import errors, policies
from bylot.errors import BylotError, DecisionError, RewardError, ServiceError
from bylot.problem import Problem
from bylot.router import persistence
from bylot.router.decision import Decision, Receipt
from bylot.router.status import RouterStatus

ERROR_BY_CODE: Mapping[str, type[BylotError]] = {
    "no_such_router": errors.RouterNotFound,
    "no_such_decision": errors.DecisionNotFound,
    "name_taken": errors.RouterExists,
    "reward_conflict": errors.RewardConflict,
    "not_now": errors.DecisionStateError,
    "key_reused": errors.IdempotencyKeyReused,
    "infeasible_limits": errors.InfeasibleLimits,
    "bad_problem": errors.ProblemError,
    "bad_policy": errors.PolicyError,
    "bad_decision": errors.DecisionError,
    "bad_reward": errors.RewardError,
    "bad_values": errors.ValuesError,
    "store_down": errors.StoreUnavailable,
    "store_damaged": errors.StoreCorrupted,
    "router_busy": errors.RouterBusy,
    "leased": errors.RouterBusy,
}
"""What a server calls an error, and what we call it."""

DENIED_STATUSES = (401, 403)
INVALID_STATUSES = (400, 422)


class ErrorReply(Struct):
    """What is wrong: a word for programs, a sentence for people, and where in the request."""

    code: str
    message: str
    field: str | None = None


class ErrorReplyBody(Struct):
    """The body of every answer that is no success."""

    error: ErrorReply


ERROR_DECODER = msgspec.json.Decoder(ErrorReplyBody)


def parse_error_body(body: bytes) -> ErrorReply | None:
    """What a server says is wrong, None if that is not one of ours."""
    try:
        return ERROR_DECODER.decode(body).error
    except msgspec.MsgspecError:
        return None


def error_from_reply(status: int, told: ErrorReply | None, wrong: type[BylotError]) -> BylotError:
    """The error to raise; `wrong` is for requests that make no sense."""
    if told is None:
        return ServiceError(
            f"an answer with status {status} came, but not from bylot; is something else at that "
            "address, or between?"
        )
    where = f" (in {told.field})" if told.field else ""
    if told.code in ERROR_BY_CODE:
        return ERROR_BY_CODE[told.code](told.message + where)
    if status in DENIED_STATUSES:
        return errors.AccessDenied(told.message)
    return (wrong if status in INVALID_STATUSES else ServiceError)(told.message + where)


OptionalNumbers = dict[str, float | None]  # JSON has no NaN


class DecisionResponse(Struct):
    """A decision."""

    id: str
    t: int
    context: str | None
    draws: tuple[str, ...]
    subset: tuple[str, ...]
    draw_probabilities: tuple[float, ...] | None
    inclusion: dict[str, float] | None
    propensity: float | None
    spend: OptionalNumbers
    expected: OptionalNumbers
    feasible: bool
    replaced: bool

    def decision(self) -> Decision:
        """As a router in memory would hand it out, but for its id."""
        return Decision(
            id=self.id,
            t=self.t,
            context=self.context,
            draws=self.draws,
            draw_probabilities=self.draw_probabilities,
            inclusion=self.inclusion,
            subset=self.subset,
            spend=nan_for_missing(self.spend),
            expected=nan_for_missing(self.expected),
            feasible=self.feasible,
            propensity=self.propensity,
            replaced=self.replaced,
        )


class CreditedResponse(Struct):
    """What became of a reward."""

    receipt: Receipt


class BatchDecisionReply(Struct):
    """A decision of a batch."""

    status: int
    decision: DecisionResponse | None = None
    error: ErrorReply | None = None

    def outcome(self) -> Decision | BylotError:
        """The decision, or the error that it would have raised alone."""
        if self.decision is not None:
            return self.decision.decision()
        return error_from_reply(self.status, self.error, DecisionError)


class BatchRewardReply(Struct):
    """A reward of a batch."""

    status: int
    credited: CreditedResponse | None = None
    error: ErrorReply | None = None

    def outcome(self) -> Receipt | BylotError:
        """The receipt, or the error that it would have raised alone."""
        if self.credited is not None:
            return self.credited.receipt
        if self.error is not None and self.error.code == "no_such_decision":
            return Receipt.UNKNOWN
        return error_from_reply(self.status, self.error, RewardError)


class DecisionOutcomes(Struct):
    """A batch of decisions."""

    results: tuple[BatchDecisionReply, ...]


class RewardOutcomes(Struct):
    """A batch of rewards."""

    results: tuple[BatchRewardReply, ...]


class RemoteConfig(Struct, frozen=True):
    """What a router is declared with at present; a change makes a new version."""

    version: int
    problem: Problem
    policy: policies.Policy
    seed: int
    horizon: int | None
    rewards: tuple[float, float]
    max_contexts: int
    memory: int
    wait: float | None
    default: float | None
    aggregate: str
    paused: tuple[str, ...]


class ConfigResponse(Struct):
    """The same as plain data, what is as usual left out."""

    problem: dict[str, Any]
    policy: dict[str, Any]
    version: int = 1
    seed: int = 0
    horizon: int | None = None
    rewards: tuple[float, float] = (0.0, 1.0)
    max_contexts: int = 1_000
    memory: int = 100_000
    wait: float | None = None
    default: float | None = None
    aggregate: str = "earliest"
    paused: tuple[str, ...] = ()

    def terms(self) -> RemoteConfig:
        """With a problem and a policy."""
        try:
            problem, policy = (
                persistence.problem_from_data(self.problem),
                policies.policy_from_data(self.policy),
            )
        except (LookupError, TypeError) as error:
            raise ServiceError(f"the server's terms of a router are no such: {error!r}") from None
        told = {name: getattr(self, name) for name in self.__struct_fields__}
        return RemoteConfig(**{**told, "problem": problem, "policy": policy})


class RouterResponse(Struct):
    """A router at one moment."""

    name: str
    number: int
    created: str
    seq: int
    terms: ConfigResponse
    status: dict[str, Any]


class RemoteRouterSummary(Struct, frozen=True):
    """A router of the list; created: RFC 3339, UTC."""

    name: str
    number: int
    created: str


class RouterListResponse(Struct):
    """A page of the list; next: where the next one begins."""

    routers: tuple[RemoteRouterSummary, ...]
    next: str | None


class LogLine(Struct, frozen=True):
    """A line of a router's log; of: the line of the decision that it speaks of."""

    seq: int
    kind: str
    of: int | None
    key: str | None
    at: str  # RFC 3339, UTC
    body: Raw  # JSON
    seal: str


class LogPage(Struct):
    """A page of a log; next: where the next one begins."""

    events: tuple[LogLine, ...]
    next: int | None


def nan_for_missing(numbers: OptionalNumbers) -> Mapping[str, float]:
    """Numbers, NaN where there is none."""
    return {name: math.nan if one is None else one for name, one in numbers.items()}


class RouterStatusResponse(Struct):
    """The status of a router."""

    status: RouterStatus
