"""Everything bylot raises on purpose; each message says what was given, what was wanted, what to do."""


class BylotError(Exception):
    """Root of all errors that a caller may want to catch."""


class ProblemError(BylotError, ValueError):
    """The description of a pool, its costs or its limits does not make sense."""


class InfeasibleLimits(ProblemError):
    """No policy whatever can keep all limits at once."""


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


class SurrogateWarning(UserWarning):
    """The paper's linear stand-in for the limits is empty although the limits themselves are not."""
