"""What limits can apply to separately: the names of scopes, and the keys of a request.

Nothing of bylot is imported here, so that the command line can list the names at once.
"""

from typing import Literal, TypedDict, get_args

ScopeName = Literal["tenant"]
"""What a limit applies to separately: each tenant, by a key that comes with the request."""

SCOPE_NAMES: tuple[ScopeName, ...] = get_args(ScopeName)


class KeyArguments(TypedDict, total=False):
    """The keys of a request as arguments: whose limits of each scope count it too."""

    tenant: str | None
