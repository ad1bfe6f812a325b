"""The policies of the experiments: the eight of section 6.3, variants of five of them, and our own.

The paper's settings are for raw rewards, sums over N dimensions between 0 and N; policies here
learn from rewards in [0, 1]. Settings that multiply a reward or are compared with one change: an
index mu + c sqrt(...) + lambda.C keeps its order if all of it is divided by N, and a step r / eta
does not change if eta is divided too.
"""

from dataclasses import replace
from itertools import product
from typing import Any, cast

from bylot.policies import POLICY_CLASSES, Cbwk, Cucb, Moe, Omd, Policy, find_policy

PAPER_POLICIES = ("random", "greedy", "cucb", "cbwk", "ts", "ts-bwk", "moe", "omd")
VARIANT_POLICIES = ("cbwk-instant", "ts-bwk-instant", "omd-sum", "omd-frozen", "omd-plain")
BEYOND_POLICIES = ("omd", "ts-bwk", "cbwk", "strict", "tangent", "distinct")
"""The paper's best three and ours."""

GUARDED_POLICIES = ("tangent", "distinct")
"""Our policies that keep limits at the end of every period."""

OWN_POLICIES = ("strict", "tangent", "distinct", "noisy-or")
COMPARED_POLICIES = (*PAPER_POLICIES, *OWN_POLICIES)
"""The policies that the default is chosen from."""

ABLATED_PARTS = {
    "guard=False": "no guard",
    "pace=None": "no pacing",
    "guard=False,pace=None": "neither",
    "eps=0.0": "no floor",
    "clip=False": "no clip",
}
"""What the ablation removes, as settings and in words."""
ABLATION_LABELS = {"": "complete", **ABLATED_PARTS}

PAPER_ETA_MULT = {"sweep": 0.03, "crowd": 0.05}


def make_experiment_policy(policy: str, experiment: str, dimensions: int) -> Policy:
    """Make a policy with the paper's settings for rewards of 0 to N = dimensions, or with those
    that its name spells out.

    >>> make_experiment_policy("omd:eta_mult=0.1", "beyond", dimensions=3) == Omd(eta_mult=0.1)
    True
    """
    found: Any = find_policy(policy)
    if ":" in policy or policy == "omd-plain":  # the theorems are for rewards in [0, 1]
        return cast(Policy, found)
    N = dimensions
    paper: dict[type[Any], dict[str, float]] = {  # ts-bwk has a posterior of r / N already
        Cucb: {"c": 2.0 / N},
        Cbwk: {"c": 2.0 / N, "step": 10.0 / N},
        Moe: {"rate": 0.01 * N, "step": 4e-4 / N},
        Omd: {"eta_mult": PAPER_ETA_MULT["sweep" if experiment == "sweep" else "crowd"] / N},
    }
    return cast(Policy, replace(found, **paper.get(type(found), {})))


def list_tuning_policies() -> list[str]:
    """The grid of tuned settings around the default, which is one of them."""
    grid = product((0.5, 1.0, 2.0), (30.0, 100.0, 300.0), (0.005, 0.02, 0.08), (5, 10, 20))
    written = [format_tuning(*settings) for settings in grid]
    return [f"{name}:{settings}" for name, settings in product(GUARDED_POLICIES, written)]


def format_tuning(eta: float, patience: float, eps: float, batch: int) -> str:
    """Write the tuned settings as in the name of a policy."""
    return f"eta={eta},patience={patience},eps={eps},batch={batch}"


def format_default_tuning(policy: str) -> str:
    """Write the default settings of a policy as the tuning grid does.

    >>> format_default_tuning("distinct")
    'eta=1.0,patience=100.0,eps=0.02,batch=10'
    """
    made: Any = POLICY_CLASSES[policy]()
    return format_tuning(made.eta, made.patience, made.eps, made.batch)
