"""bylot routes each request to a small panel of experts drawn by lot, and keeps long-run limits.

Names are imported when first used, so that `bylot --help` does not wait for the compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bylot.version import __version__

if TYPE_CHECKING:
    from bylot import bounds, environments, errors, evaluation, files, policies
    from bylot.client import AsyncClient, Client
    from bylot.decision import Decision, Receipt
    from bylot.metrics import Score, score
    from bylot.optima import Mixture, Optimum, best_mixture, optimum
    from bylot.playing import play
    from bylot.problem import Limit, Problem, at_least, at_most, share
    from bylot.router import Router
    from bylot.simulation import Trace, simulate

HOME = {
    "AsyncClient": "client",
    "Client": "client",
    "Decision": "decision",
    "Limit": "problem",
    "Mixture": "optima",
    "Optimum": "optima",
    "Problem": "problem",
    "Receipt": "decision",
    "Router": "router",
    "Score": "metrics",
    "Trace": "simulation",
    "at_least": "problem",
    "at_most": "problem",
    "best_mixture": "optima",
    "optimum": "optima",
    "play": "playing",
    "score": "metrics",
    "share": "problem",
    "simulate": "simulation",
}
MODULES = ["bounds", "environments", "errors", "evaluation", "files", "policies"]

__all__ = [
    "AsyncClient",
    "Client",
    "Decision",
    "Limit",
    "Mixture",
    "Optimum",
    "Problem",
    "Receipt",
    "Router",
    "Score",
    "Trace",
    "__version__",
    "at_least",
    "at_most",
    "best_mixture",
    "bounds",
    "environments",
    "errors",
    "evaluation",
    "files",
    "optimum",
    "play",
    "policies",
    "score",
    "share",
    "simulate",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"bylot.{name}")
    if name not in HOME:
        raise AttributeError(f"module 'bylot' has no attribute {name!r}")
    return getattr(import_module(f"bylot.{HOME[name]}"), name)
