"""Who plays: the eight policies of section 6.3, and the other readings of five of them.

The paper's settings speak of raw rewards, sums over N dimensions between 0 and N; a policy here
learns from rewards in [0, 1]. What multiplies a reward or is compared with one is converted: an
index mu + c sqrt(...) + lambda.C keeps its order when all of it is divided by N, and a step
r / eta stays what it is when eta is.
"""

from collections.abc import Callable

from bylot.policies import Cbwk, Cucb, Greedy, Moe, Omd, Policy, Random, Ts, TsBwk

PAPER = ("random", "greedy", "cucb", "cbwk", "ts", "ts-bwk", "moe", "omd")
VARIANTS = ("cbwk-instant", "ts-bwk-instant", "omd-sum", "omd-frozen", "omd-plain")

ETA_MULT = {"sweep": 0.03, "crowd": 0.05}


def settings(policy: str, experiment: str, dimensions: int) -> Policy:
    """The settings of a policy in an experiment with rewards of 0 to N = dimensions."""
    N, eta_mult = dimensions, ETA_MULT[experiment] / dimensions
    makers: dict[str, Callable[[], Policy]] = {
        "random": Random,
        "greedy": Greedy,
        "cucb": lambda: Cucb(c=2.0 / N),
        "cbwk": lambda: Cbwk(c=2.0 / N, step=10.0 / N),
        "cbwk-instant": lambda: Cbwk(c=2.0 / N, step=10.0 / N, dual_on="instant"),
        "ts": Ts,
        "ts-bwk": TsBwk,  # its posterior is of r / N as it is
        "ts-bwk-instant": lambda: TsBwk(dual_on="instant"),
        "moe": lambda: Moe(rate=0.01 * N, step=4e-4 / N),
        "omd": lambda: Omd(eta_mult=eta_mult),
        "omd-sum": lambda: Omd(eta_mult=eta_mult, batch_gradient="sum"),
        "omd-frozen": lambda: Omd(eta_mult=eta_mult, freeze_dual_in_batch=True),
        "omd-plain": Omd.plain,  # the theorems speak of rewards in [0, 1]
    }
    return makers[policy]()
