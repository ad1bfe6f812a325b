"""All that bylot raises on purpose: what was given, what was wanted, what to do."""

from typing import Any


class BylotError(Exception):
    """Root of all errors that a caller may want to catch."""


class ProblemError(BylotError, ValueError):
    """The description of a pool, its costs or its limits does not make sense."""


class InfeasibleLimits(ProblemError):
    """No policy whatever can keep all limits at once.

    conflict: the limits that cannot be kept together; smallest: no fewer limits are in conflict
    (otherwise none of these can be spared, but another conflict may be smaller). remedies: changes
    of bounds each of which would do. draws: the draws per request that would do, None if none.
    """

    def __init__(
        self,
        message: str,
        conflict: tuple[Any, ...] = (),
        remedies: tuple[Any, ...] = (),
        smallest: bool = True,
        draws: int | None = None,
    ) -> None:
        super().__init__(message)
        self.conflict = conflict
        self.remedies = remedies
        self.smallest = smallest
        self.draws = draws


class ProblemFileError(ProblemError):
    """A problem file cannot be used; one line names the file, the line in it and the remedy."""


class InfeasibleProblemFile(ProblemFileError, InfeasibleLimits):
    """No policy whatever can keep all limits of a problem file at once.

    lines: where each limit of the conflict is written.
    """

    def __init__(
        self,
        message: str,
        conflict: tuple[Any, ...] = (),
        remedies: tuple[Any, ...] = (),
        smallest: bool = True,
        draws: int | None = None,
        lines: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message, conflict, remedies, smallest, draws)
        self.lines = lines


class PolicyError(BylotError, ValueError):
    """A policy was asked for that does not exist, or with settings it cannot have."""


class ValuesError(BylotError, ValueError):
    """Values or contexts to play on have the wrong shape or content."""


class DecisionError(BylotError, ValueError):
    """A decision was asked for that cannot be made, such as from an empty set of experts."""


class RewardError(BylotError, ValueError):
    """A reward is not a finite number in the declared range; nothing was changed."""


class RewardConflict(BylotError):
    """A decision already has another reward; nothing was changed."""


class SavedFileError(BylotError, ValueError):
    """A saved router cannot be read, or was written by a version this one does not know."""


class SavedFileMissing(SavedFileError, FileNotFoundError):
    """There is no saved router where one was looked for."""


class StoreError(BylotError):
    """Something about the place where logs are kept."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, is locked or is full; the same may succeed later."""


class StoreCorrupted(StoreError):
    """The store, or the log of one router in it, is not what was written."""


class UnsupportedStore(StoreError):
    """An address that names no kind of store, or a store of a version this bylot does not know."""


class LeaseLost(StoreError):
    """Another writer has taken over a router's log; nothing was written.

    routers: the numbers of those that are no longer ours.
    """

    def __init__(self, message: str, routers: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.routers = routers


class RouterBusy(StoreError):
    """Another server has the lease of a router, for so many seconds more."""

    def __init__(self, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class RouterNotFound(StoreError, LookupError):
    """There is no router of this name."""


class DecisionNotFound(StoreError, LookupError):
    """No decision has this id."""


class RouterExists(StoreError):
    """A router of this name is there already."""


class IdempotencyKeyReused(StoreError):
    """A key that was used for a request is used for another one; nothing was changed."""


class DecisionStateError(StoreError):
    """A decision is not in a state in which this can be done to it; nothing was changed."""


class ServiceError(BylotError):
    """A server failed, or it and this bylot do not understand each other."""


class ServerUnreachable(ServiceError):
    """No answer came from a server, however often it was asked."""


class AccessDenied(ServiceError):
    """A server wants a key, or one that may do this."""


class DataError(BylotError, ValueError):
    """A file of data cannot be used; one line names the file, the place in it and the remedy."""


class DataUnreachable(DataError):
    """Data that must be downloaded cannot be: no network, or the server does not give it."""


class TargetError(BylotError, ValueError):
    """A policy to be evaluated makes no sense for this pool, or says nothing of a round."""


class InsufficientOverlap(BylotError):
    """A log cannot tell what the target would have earned; the message says what would help."""


class OutOfReachWarning(UserWarning):
    """The chosen policy cannot keep the limits, although another one could."""


class SurrogateWarning(UserWarning):
    """The paper's linear stand-in for the limits is empty although the limits are not."""


def error_for_running_router(
    error: InfeasibleLimits | PolicyError,
) -> InfeasibleLimits | PolicyError:
    """The same, where policy, horizon and draws stay as they are.

    >>> print(error_for_running_router(PolicyError("too tight; take 'omd'")))
    too tight; loosen the limits or change the experts, or make a new router and there take 'omd'
    """
    if isinstance(error, PolicyError):
        fault, _, remedy = str(error).rpartition("; ")
        there = f"make a new router and there {remedy}"
        return PolicyError(f"{fault}; loosen the limits or change the experts, or {there}")
    if error.draws is None:
        return error
    said, _, _ = str(error).partition(" Or draw more experts")
    message = f"{said} Or make a new router with draws={error.draws}."
    return InfeasibleLimits(message, error.conflict, error.remedies, error.smallest, error.draws)


def install_command(extra: str) -> str:
    """The remedy for a missing extra of pyproject.toml; bylot is in no registry of packages.

    >>> install_command("plot")
    "pip install '.[plot]' in the folder of the repository"
    """
    return f"pip install '.[{extra}]' in the folder of the repository"
