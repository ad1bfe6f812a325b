"""Stores of event logs in SQLite and PostgreSQL: the only modules that use SQL."""

from bylot.store.protocol import EmptyDatabase, Store
from bylot.store.schema import (
    ApiKey,
    DecisionEvents,
    Event,
    RouterRow,
    Segment,
    ServerRow,
    Snapshot,
)
from bylot.store.url import find_store_folder, hide_password, open_store, store_exists

__all__ = [
    "ApiKey",
    "DecisionEvents",
    "EmptyDatabase",
    "Event",
    "RouterRow",
    "Segment",
    "ServerRow",
    "Snapshot",
    "Store",
    "find_store_folder",
    "hide_password",
    "open_store",
    "store_exists",
]
