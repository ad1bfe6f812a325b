"""bylot routes each request to a small panel of experts and keeps long-run limits.

Names are imported when first used, so that `bylot --help` does not wait for the compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bylot import environments, errors, evaluate, policies, problem_files, theory
    from bylot.client import AsyncClient, Client
    from bylot.metrics import Score, score
    from bylot.optima import FluidOptimum, IidOptimum, Optimum, fluid_optimum, iid_optimum, optimum
    from bylot.problem import Limit, Problem, at_least, at_most, share
    from bylot.router.decision import Decision, Receipt
    from bylot.router.router import Router
    from bylot.router_play import play
    from bylot.simulation import simulate
    from bylot.trace import Trace

PUBLIC_HOMES = {
    "client": ("AsyncClient", "Client"),
    "metrics": ("Score", "score"),
    "optima": ("FluidOptimum", "IidOptimum", "Optimum", "fluid_optimum", "iid_optimum", "optimum"),
    "problem": ("Limit", "Problem", "at_least", "at_most", "share"),
    "router.decision": ("Decision", "Receipt"),
    "router.router": ("Router",),
    "router_play": ("play",),
    "simulation": ("simulate",),
    "trace": ("Trace",),
}
PUBLIC_MODULES = ["environments", "errors", "evaluate", "policies", "problem_files", "theory"]

__all__ = [
    "AsyncClient",
    "Client",
    "Decision",
    "FluidOptimum",
    "IidOptimum",
    "Limit",
    "Optimum",
    "Problem",
    "Receipt",
    "Router",
    "Score",
    "Trace",
    "__version__",
    "at_least",
    "at_most",
    "environments",
    "errors",
    "evaluate",
    "fluid_optimum",
    "iid_optimum",
    "optimum",
    "play",
    "policies",
    "problem_files",
    "score",
    "share",
    "simulate",
    "theory",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in PUBLIC_MODULES:
        return import_module(f"bylot.{name}")
    for home, names in PUBLIC_HOMES.items():
        if name in names:
            return getattr(import_module(f"bylot.{home}"), name)
    raise AttributeError(f"module 'bylot' has no attribute {name!r}")
