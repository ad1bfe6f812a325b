"""Where logs of decisions are kept: the only modules that speak SQL."""

from bylot.store.address import is_there, open_store, shown
from bylot.store.contract import ApiKey, Event, Past, RouterRow, Snapshot, Store

__all__ = [
    "ApiKey",
    "Event",
    "Past",
    "RouterRow",
    "Snapshot",
    "Store",
    "is_there",
    "open_store",
    "shown",
]
