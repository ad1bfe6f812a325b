"""When to send a call again, and what its answer comes to: the same for threads and coroutines.

Nothing is sent and nobody sleeps here: `exchange` is told how each attempt ended, and says how long
to wait before the next.
"""

import random
from collections.abc import Generator
from typing import NamedTuple, TypeVar

from bylot.client.call import Call
from bylot.client.failures import failure, trouble
from bylot.errors import BylotError, ServerUnreachable

Answer = TypeVar("Answer")

RETRIES = 15  # half a minute in all, give or take: a store or a server that is started anew
FIRST = 0.1  # seconds before the second attempt; each later pause is twice as long
SLOWEST = 4.0  # seconds between two attempts, if the server does not ask for more
LONGEST = 30.0  # no pause is longer; a server that wants more is not waited for
LATER = (429, 502, 503, 504)


class Reply(NamedTuple):
    """An answer came."""

    status: int
    body: bytes
    retry_after: str = ""


class Lost(NamedTuple):
    """No answer came; sent: may the request have arrived?"""

    why: str
    sent: bool


def exchange(call: Call[Answer], retries: int) -> Generator[float, Reply | Lost, Answer]:
    """Yields the seconds to wait before each attempt, and returns the answer or raises."""
    pause, attempts, leases = 0.0, 0, 0
    while True:
        outcome = yield pause
        attempts += 1
        if isinstance(outcome, Reply):
            if outcome.status < 300:
                return call.read(outcome.body)
            told = trouble(outcome.body)
            if told is not None and told.code in call.plain:
                return call.plain[told.code]
            leases += told is not None and told.code == "leased"
        asked = wanted(outcome)
        # A lease that is still another server's when it should have ended is one that is renewed.
        if attempts > retries or leases > 1 or asked > LONGEST or not passing(call, outcome):
            raise final(call, outcome, attempts)
        pause = max(asked, backoff(attempts))


def passing(call: Call[Answer], outcome: Reply | Lost) -> bool:
    """May the same call go well later?"""
    if isinstance(outcome, Lost):
        return call.again or not outcome.sent
    if outcome.status == 409:
        told = trouble(outcome.body)
        return told is not None and told.code == "in_flight"
    return outcome.status in LATER and (call.again or outcome.status == 429)


def wanted(outcome: Reply | Lost) -> float:
    """The seconds that a server asks for."""
    told = outcome.retry_after if isinstance(outcome, Reply) else ""
    return float(told) if told.isascii() and told.isdigit() else 0.0


def backoff(attempts: int) -> float:
    """FIRST * 2^(attempts - 1), at most SLOWEST, less up to half of it by chance: callers that were
    turned away together do not come back together.
    """
    return float(min(SLOWEST, FIRST * 2 ** (attempts - 1)) * random.uniform(0.5, 1.0))


def final(call: Call[Answer], outcome: Reply | Lost, attempts: int) -> BylotError:
    """The error after the last attempt."""
    if isinstance(outcome, Reply):
        return failure(outcome.status, trouble(outcome.body), call.wrong)
    times = f"{attempts} attempt{'s' * (attempts != 1)}"
    if outcome.sent and not call.again:
        return ServerUnreachable(
            f"{call.method} {call.path}: the answer was lost ({outcome.why}), so it may have been "
            "done; look before you send it again"
        )
    return ServerUnreachable(
        f"{call.method} {call.path}: no answer after {times} ({outcome.why}); is the server there?"
    )
