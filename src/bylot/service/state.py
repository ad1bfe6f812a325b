"""What all requests share."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bylot.service.credentials import Credentials
from bylot.service.desk import Desk
from bylot.service.metrics import Meters
from bylot.service.rate import Rates
from bylot.service.reader import Reader
from bylot.service.settings import Settings
from bylot.service.tracing import Spans
from bylot.service.workshop import workshop


@dataclass
class Service:
    """One server.

    contract: the OpenAPI document
    stopping: it was told to stop, and finishes what it has in hand
    editing:  held by whoever edits the terms of a router
    workshop: where problems are checked and policies compiled, so that nobody waits for that
    """

    settings: Settings
    desk: Desk
    reader: Reader
    credentials: Credentials
    rates: Rates
    meters: Meters
    spans: Spans | None
    contract: bytes
    stopping: bool = False
    editing: asyncio.Lock = field(default_factory=asyncio.Lock)
    workshop: ThreadPoolExecutor = field(default_factory=workshop)
