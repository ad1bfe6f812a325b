"""What a policy is to router, simulator and saved files: settings that can be put to work."""

from typing import Any, ClassVar, Protocol, runtime_checkable

from bylot.kernels.compile import Floats
from bylot.problem import Problem


class Policy(Protocol):
    """Frozen settings; what they do is in the steps registered for the rule they bind to."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    aware: ClassVar[bool]
    """Does it look at the limits?"""

    multinomial: ClassVar[bool]
    """Is a panel M i.i.d. draws from its law? If not, no theorem applies."""

    whole: ClassVar[bool]
    """Is a panel drawn as one set? A ticket then tells its chance, and every expert's odds."""

    def bind(self, problem: Problem, horizon: int | None = None) -> Any:
        """The rule for this problem, over a known horizon or for as long as it is asked."""
        ...

    def start(self, rule: Any, contexts: int = 1) -> Any:
        """The state before the first decision; a line of `visits` for each context."""
        ...

    def sound(self, rule: Any, state: Any) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        ...

    def prices(self, problem: Problem, rule: Any, state: Any) -> Floats:
        """What each limit costs now, in rewards of [0, 1] per unit of its bound; NaN: unknown."""
        ...


@runtime_checkable
class Confined(Protocol):
    """A policy that remembers so much of every context that there is room for only so many."""

    def most_contexts(self, size: int) -> int:
        """Contexts of a pool of so many experts that `start` has room for."""
        ...


@runtime_checkable
class Derives(Protocol):
    """A policy whose state holds, for speed, what follows from the rest of it.

    Saved files do without: they would be many times as large.
    """

    derived: ClassVar[tuple[str, ...]]
    """The fields of the state that follow from the others."""

    def derive(self, rule: Any, state: Any) -> None:
        """Write them, to the last bit as the steps do."""
        ...
