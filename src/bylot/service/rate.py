"""How often each credential may ask: a bucket that fills with time."""

import time
from collections.abc import Callable

from bylot.service.errors import Refusal


class Rates:
    """Buckets of `burst` requests that fill by `rate` per second, one for each credential.

    burst: None: max(10, 2 rate)

    A batch takes as many as it has items, and may leave its bucket in debt: what follows waits.
    """

    def __init__(
        self,
        rate: float | None,
        burst: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate, self.clock = rate, clock
        self.burst = max(10.0, 2 * (rate or 0.0)) if burst is None else float(burst)
        self.buckets: dict[str | None, tuple[float, float]] = {}  # what is left, and since when

    def take(self, who: str | None, count: int = 1) -> None:
        """Let a request pass, or say after how many seconds it will."""
        if self.rate is None:
            return
        now = self.clock()
        left, since = self.buckets.get(who, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.rate)
        if left < 1:
            message = f"more than {self.rate:g} requests per second; wait a little"
            raise Refusal(429, "too_many_requests", message, retry=(1 - left) / self.rate)
        self.buckets[who] = (left - count, now)
