"""What a server refuses, as the errors that a router in memory raises."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from bylot import errors
from bylot.errors import BylotError, ServiceError

BY_CODE: Mapping[str, type[BylotError]] = {
    "no_such_router": errors.NoSuchRouter,
    "no_such_decision": errors.NoSuchDecision,
    "name_taken": errors.NameTaken,
    "reward_conflict": errors.RewardConflict,
    "not_now": errors.NotNow,
    "key_reused": errors.KeyReused,
    "infeasible_limits": errors.InfeasibleLimits,
    "bad_problem": errors.ProblemError,
    "bad_policy": errors.PolicyError,
    "bad_decision": errors.DecisionError,
    "bad_reward": errors.RewardError,
    "bad_values": errors.ValuesError,
    "store_down": errors.StoreDown,
    "store_damaged": errors.StoreDamaged,
    "router_busy": errors.RouterBusy,
    "leased": errors.RouterBusy,
}
"""What a server calls an error, and what we call it."""

DENIED = (401, 403)
NONSENSE = (400, 422)


class Trouble(Struct):
    """What is wrong: a word for programs, a sentence for people, and where in the request."""

    code: str
    message: str
    field: str | None = None


class Refused(Struct):
    """The body of every answer that is no success."""

    error: Trouble


REFUSED = msgspec.json.Decoder(Refused)


def trouble(body: bytes) -> Trouble | None:
    """What a server says is wrong, None if that is not one of ours."""
    try:
        return REFUSED.decode(body).error
    except msgspec.MsgspecError:
        return None


def failure(status: int, told: Trouble | None, wrong: type[BylotError]) -> BylotError:
    """The error to raise; `wrong` is for requests that make no sense."""
    if told is None:
        return ServiceError(
            f"an answer with status {status} came, but not from bylot; is something else at that "
            "address, or between?"
        )
    where = f" (in {told.field})" if told.field else ""
    if told.code in BY_CODE:
        return BY_CODE[told.code](told.message + where)
    if status in DENIED:
        return errors.AccessDenied(told.message)
    return (wrong if status in NONSENSE else ServiceError)(told.message + where)
