"""The event log of a router on a server as a log of decisions for evaluation (docs/log.md)."""

from bylot.client.client import Client
from bylot.evaluate import LogEntry
from bylot.eventlog.decision_log import LogReader


def read_entries(client: Client, name: str) -> list[LogEntry]:
    """The decisions of a router on a server that were used, in order."""
    router = client.router(name)
    return LogReader(f"{name}.{router.view().number}").read(router.events())
