"""Steps of compiled code that are chosen by the type of their first argument."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba.extending import overload

from bylot.numerics.jit import INLINED_OPTIONS, LINKED_OPTIONS

StepBody = TypeVar("StepBody", bound=Callable[..., Any])

STEP_BODIES: dict[tuple[Callable[..., Any], type], Callable[..., Any]] = {}


def dispatch_by_type(
    generic: Callable[..., Any], inline: bool = False, default: Callable[..., Any] | None = None
) -> None:
    """Let compiled code pick the body of a function by the *type* of its first argument.

    A loop over such steps can be cached on disk, which one that takes them as arguments cannot.
    """
    how = ("always", INLINED_OPTIONS) if inline else ("never", LINKED_OPTIONS)

    @overload(generic, inline=how[0], jit_options=how[1], strict=False)  # type: ignore[untyped-decorator]
    def find_body(rule: Any, *others: Any) -> Any:
        return STEP_BODIES.get((generic, rule.instance_class), default)


def step(generic: Callable[..., Any], rule: type) -> Callable[[StepBody], StepBody]:
    """Register the body that `generic` has for rules of this type.

    Bodies are inlined, and numba then drops writes whose target it cannot trace back to an
    argument: take an array from the state where it is written to, or hand it to a compiled kernel.
    Tests that replay a policy in Python notice a write that is gone.
    """

    def register(body: StepBody) -> StepBody:
        STEP_BODIES[generic, rule] = body
        return body

    return register
