"""Errors and warnings of bylot: they carry their parts as data, and `explain` writes the text."""

from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

from bylot._text import join_words

MAX_REMEDIES_SHOWN = 6  # that a message spells out; the error carries all of them
NOT_GIVEN: Any = ...  # `got` of an error that is not about a single value (None is a value)


class Explained(Exception):
    """What errors and warnings have in common: the parts of their message, as attributes.

    Parameters
    ----------
    what : str, optional
        The fault; with `got`, the name of the invalid value, by default the `subject` of the class.
        ``{limits}`` in it stands for `limits`.
    **parts
        `got`, the invalid value; `expected`, what a valid value is; `remedy`, what the caller can
        do; `limits`, those that the message names; and the further attributes of a class.

    Examples
    --------
    >>> print(RewardError(got=1.2, expected="a number in [0, 1]", remedy="declare a wider range"))
    invalid reward 1.2: expected a number in [0, 1]; declare a wider range
    >>> print(PolicyError("the horizon is too short", remedy="give at least 30 rounds"))
    the horizon is too short; give at least 30 rounds
    """

    subject: ClassVar[str] = "value"
    got: Any = NOT_GIVEN
    expected: str | None = None
    remedy: str | None = None
    limits: Sequence[Any] = ()
    running: bool = False

    def __init__(self, what: str | None = None, **parts: Any) -> None:
        self.what = self.subject if what is None else what
        for name, value in parts.items():
            default = getattr(type(self), name)  # an AttributeError for a part it does not have
            setattr(self, name, tuple(value) if default == () else value)
        super().__init__(self.what)

    def __str__(self) -> str:
        return self.explain()

    def explain(self, format_limit: Callable[[Any], str] = str) -> str:
        """Write the message, each limit as `format_limit` writes it."""
        limits = join_words(map(format_limit, self.limits), "and")
        text = self.what.replace("{limits}", limits) if limits else self.what
        if self.got is not NOT_GIVEN:
            text = f"invalid {text} {self.got!r}"
        if self.expected is not None:
            text = f"{text}: expected {self.expected}"
        return "; ".join(filter(None, [text, self.advise(format_limit)]))

    def advise(self, format_limit: Callable[[Any], str] = str) -> str:
        """Write what the caller can do."""
        if not self.running:
            return self.remedy or ""
        other = f", or create a new router: {self.remedy}" if self.remedy else ""
        return f"loosen the limits or change the experts{other}"

    def for_running_router(self) -> Self:
        """Copy the error for a router whose policy, horizon and draws cannot change any more.

        >>> print(PolicyError("too few draws", remedy="use 'omd'").for_running_router())
        too few draws; loosen the limits or change the experts, or create a new router: use 'omd'
        """
        other = copy(self)
        other.running = True
        return other


class BylotError(Explained):
    """Root of all errors that a caller may want to catch."""


class ProblemError(BylotError, ValueError):
    """The description of a pool, its costs or its limits is invalid."""


class InfeasibleLimits(ProblemError):
    """No policy can keep all limits at once.

    Attributes
    ----------
    limits : sequence of Limit
        The conflict: limits that cannot be kept together.
    remedies : sequence of tuples of Limit
        Limits with other bounds; each tuple resolves the conflict on its own.
    smallest : bool
        Whether no conflict has fewer limits. If not, none of these limits can be left out, but
        another conflict may be smaller.
    draws : int, optional
        A number of draws per request that resolves the conflict.
    min_draws : int, optional
        A smaller minimum of members that resolves it.
    """

    remedies: Sequence[Any] = ()
    smallest: bool = True
    draws: int | None = None
    min_draws: int | None = None

    def advise(self, format_limit: Callable[[Any], str] = str) -> str:
        """Write the bounds that resolve the conflict, and the numbers of draws that do."""
        if self.remedy is not None or not (self.remedies or self.draws or self.min_draws):
            return super().advise(format_limit)
        bounds = [join_words(map(format_limit, one), "and") for one in self.remedies]
        more = len(bounds) - MAX_REMEDIES_SHOWN
        if more > 0:
            bounds[MAX_REMEDIES_SHOWN:] = [f"one of {more} more in .remedies"]
        ways = [f"use {' or '.join(bounds)}"] if bounds else []
        if self.remedies and len(self.remedies[0]) > 1:
            ways = [f"use {bounds[0]} together, as no single change is enough"]
        if self.draws and self.running:
            ways.append(f"create a new router with draws={self.draws}")
        elif self.draws:
            ways.append(f"draw more experts per request: draws={self.draws}")
        if self.min_draws:
            ways.append(f"allow smaller panels: min_draws={self.min_draws}")
        return ", or ".join(ways)


class LocatedError(BylotError, ValueError):
    """An error in a file: its `path`, and the `line` (a number or a row's name) if known; `field`
    is the entry of a problem.
    """

    path: Path | None = None
    line: int | str | None = None
    field: str | None = None

    def explain(self, format_limit: Callable[[Any], str] = str) -> str:
        """Write the message, after the file and the line."""
        place = f"line {self.line}" if isinstance(self.line, int) else self.line
        name = str(self.path) if str(self.path).isprintable() else repr(str(self.path))
        where = [name, place] if self.path is not None else [place]
        text = ", ".join(one for one in where if one)
        message = super().explain(format_limit)
        return f"{text}: {message}" if text else message


class ProblemFileError(LocatedError, ProblemError):
    """A problem file cannot be used; the message names the file, the line and the remedy."""


class InfeasibleProblemFile(ProblemFileError, InfeasibleLimits):
    """No policy can keep all limits of a problem file; `lines` are the lines of the conflict."""

    lines: Sequence[int | None] = ()


class PolicyError(BylotError, ValueError):
    """A policy does not exist, or a setting of it is invalid."""


class TooManyDraws(ProblemError, PolicyError):
    """A problem has more draws per request than experts, and its panels have different members."""


class ValuesError(BylotError, ValueError):
    """Values or contexts of an environment have the wrong shape or content."""


class DecisionError(BylotError, ValueError):
    """A decision cannot be made, for example from an empty set of experts."""


class TenantError(DecisionError, PolicyError):
    """A request names no tenant, or one without limits for it; or it has no bound of its own.

    Attributes
    ----------
    field : str, optional
        Of a request that names no key: the scope that it has to name one of, such as "tenant".
    """

    field: str | None = None


class TooManyContexts(DecisionError):
    """A router has as many contexts as it was declared for, and this one would be new."""


class BudgetSpent(DecisionError):
    """A budget of the calendar leaves no panel until its window ends; nothing was changed.

    Attributes
    ----------
    limit : Limit, optional
        The limit that is spent; None from a client of a server, whose message names it.
    resets_at : int
        The end of its window, in microseconds since 1970: ``error.resets_at / 1e6`` is a timestamp.
    reset_s : float, optional
        Seconds until then.
    field : str, optional
        'tenant' if it is the budget of the tenant that the request names.
    """

    limit: Any = None
    resets_at: int = 0
    reset_s: float | None = None
    field: str | None = None


class RewardError(BylotError, ValueError):
    """A reward is not a finite number in the declared range; nothing was changed."""

    subject = "reward"


class RewardConflict(BylotError):
    """The decision already has a different reward; nothing was changed."""


class SavedFileError(BylotError, ValueError):
    """A saved router cannot be read, or has a version that this bylot does not support."""


class SavedFileMissing(SavedFileError, FileNotFoundError):
    """The file of a saved router does not exist."""


class StoreError(BylotError):
    """Base of errors about stored routers."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, is locked or is full; a later attempt may succeed."""


class StoreCorrupted(StoreError):
    """The store, or the log of one router in it, is not what was written."""

    remedy = "restore the store from a backup"


class UnsupportedStore(StoreError):
    """The URL names no supported store, or the store has an unsupported version."""


class LeaseLost(StoreError):
    """Another writer has taken over the logs of `routers` (their numbers); nothing was written."""

    routers: Sequence[int] = ()


class RouterBusy(StoreError):
    """Another server holds the lease of a router for `seconds` more."""

    seconds: float = 1.0


class PolicyCompiling(StoreError):
    """A server is still compiling the policy of a router; nothing was done."""


class RouterNotFound(StoreError, LookupError):
    """No router has this name."""


class DecisionNotFound(StoreError, LookupError):
    """No decision has this id."""


class RouterExists(StoreError):
    """A router of this name exists already."""


class IdempotencyKeyReused(StoreError):
    """An idempotency key was reused for a different request; nothing was changed."""


class DecisionStateError(StoreError):
    """The state of the decision does not allow this; nothing was changed."""


class DecisionInUse(DecisionStateError):
    """Only the gateway may do this to its decision; nothing was changed."""


class NoSubstitute(DecisionStateError):
    """Nobody can take the place of a member that failed; nothing was changed."""


class ServiceError(BylotError):
    """A server failed, or its answer cannot be understood."""


class ServerUnreachable(ServiceError):
    """The server did not answer, after all retries."""


class AccessDenied(ServiceError):
    """The server requires a key, or one with this permission."""


class DataError(LocatedError):
    """A data file cannot be used; the message names the file, the place and the remedy."""


class DataUnreachable(DataError):
    """Data cannot be downloaded: no network, or the server refuses."""


class TargetError(BylotError, ValueError):
    """A policy to be evaluated does not fit this pool, or does not cover a round."""


class InsufficientOverlap(BylotError):
    """A log contains too little information about the target policy."""


class BylotWarning(Explained, UserWarning):
    """Base of warnings; they carry their parts as errors do."""


class OutOfReachWarning(BylotWarning):
    """The chosen policy cannot keep the limits, although another one could."""


class SurrogateWarning(BylotWarning):
    """The paper's linear surrogate of the limits is empty although the limits are not."""


class SmallerPanelsWarning(BylotWarning):
    """The limits allow only panels of fewer members than were declared."""


class IgnoredFeedbackWarning(BylotWarning):
    """The policy learns from the reward alone, although more was declared to be reported."""


def install_command(extra: str = "", editable: bool = False) -> str:
    """Write the remedy for a missing extra of pyproject.toml, or for a missing package without one;
    no package registry has bylot.

    editable: run what the repository has and the package leaves out

    >>> install_command("plot")
    "pip install '.[plot]' in the folder of the repository"
    """
    how = "-e " if editable else ""
    what = f"'.[{extra}]'" if extra else "."
    return f"pip install {how}{what} in the folder of the repository"
