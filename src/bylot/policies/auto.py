"""auto: the policy that a problem calls for, by the rule that the table of all policies came to.

The table, its losses included, is `docs/default`; `bylot reproduce default` makes it.
"""

from dataclasses import dataclass

from bylot.errors import PolicyError
from bylot.policies.distinct import Distinct
from bylot.policies.panel import MEMORY, Panel, room
from bylot.policies.policy import Policy
from bylot.policies.settings import yes_or_no
from bylot.policies.tangent import Tangent
from bylot.problem import Problem

MANY = 300  # experts: nobody has seen how `panel` learns about the pairs of more, which take long


@dataclass(frozen=True)
class Auto:
    """Who plays is left to the problem.

    propensities: must the chance of every panel be told, so that its log can be evaluated? What was
                  not told when a panel was drawn cannot be found out later, so this is the default
    contexts:     how many there will be, about; None: as many as are declared, else 1
    """

    propensities: bool = True
    contexts: int | None = None

    def __post_init__(self) -> None:
        yes_or_no(propensities=self.propensities)
        told = self.contexts
        if told is not None and (type(told) is not int or told < 1):
            raise PolicyError(f"contexts={told!r} is no number of contexts; give 1, or none")

    def settled(self, problem: Problem) -> Policy:
        """The policy for this problem.

        `tangent`, if panels of M different experts cannot keep the limits; `distinct`, if chances
        are to be told, or where beliefs about pairs are too many; else `panel`.
        """
        if problem.full_conflict is not None:
            return Tangent()
        fits = problem.size <= MANY and room(self.contexts or 1, problem.size) <= MEMORY
        if self.propensities or not fits:
            return Distinct()
        return Panel()
