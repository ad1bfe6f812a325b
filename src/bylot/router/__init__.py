"""In-memory routers: the core that decides and learns, the public Router, its status and files.

Names are imported when first used, so that reading a `Receipt` does not load the compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bylot.router.decision import Decision, Receipt
    from bylot.router.router import Router
    from bylot.router.status import RouterStatus

ROUTER_EXPORTS = {
    "Decision": "decision",
    "Receipt": "decision",
    "Router": "router",
    "RouterStatus": "status",
}

__all__ = ["Decision", "Receipt", "Router", "RouterStatus"]


def __getattr__(name: str) -> Any:
    if name not in ROUTER_EXPORTS:
        raise AttributeError(f"module 'bylot.router' has no attribute {name!r}")
    return getattr(import_module(f"bylot.router.{ROUTER_EXPORTS[name]}"), name)
