"""What a server is started with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """One server; times in seconds, sizes in bytes.

    group:     commit what queued up together; False: one commit per request, for comparison
    queue:     commands that may wait before others are turned away
    rate:      requests per second of each credential, in the long run; None: as many as it likes
    burst:     requests that a credential may send at once before `rate` applies; None: those of
               two seconds, at least ten
    body_wait: for the whole body of a request
    idle:      for the first byte of a request, and for the rest of its head
    drain:     for requests in hand, once the server is told to stop
    """

    store: str = "sqlite:///bylot.db"
    host: str = "127.0.0.1"
    port: int = 8000
    log_level: str = "info"
    group: bool = True
    queue: int = 10_000
    rate: float | None = None
    burst: int | None = None
    body: int = 1_000_000
    body_wait: float = 10.0
    idle: float = 30.0
    drain: float = 30.0
    lease: float = 10.0
