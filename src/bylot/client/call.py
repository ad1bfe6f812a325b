"""Call: one request to a server, and how its answer is read; sending it is left to others."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from bylot.errors import BylotError, ServiceError

Answer = TypeVar("Answer")


class Call(NamedTuple, Generic[Answer]):
    """What to send.

    again: is twice the same as once? If not, it is sent again only if it never arrived.
    wrong: what it is called if the server finds that it makes no sense
    plain: refusals, by code, that are answers as good as others
    slow:  may take long, as a policy may have to be compiled first
    """

    method: str
    path: str
    read: Callable[[bytes], Answer]
    body: bytes | None = None
    again: bool = True
    wrong: type[BylotError] = ServiceError
    plain: Mapping[str, Answer] = MappingProxyType({})
    slow: bool = False


def written(body: Any, wrong: type[BylotError]) -> bytes:
    """A body as JSON; numbers of NumPy are numbers."""
    try:
        return msgspec.json.encode(body, enc_hook=own)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong(f"this cannot be sent: {error}") from None


def own(value: Any) -> Any:
    """A scalar of NumPy, or an array of such, as Python's own."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"{value!r} is neither a number nor text")
    return value.tolist()


def reader(kind: type[Answer]) -> Callable[[bytes], Answer]:
    """How an answer of a kind is read; fields that a newer server adds are passed over."""
    decoder = msgspec.json.Decoder(kind)

    def read(body: bytes) -> Answer:
        try:
            return decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise ServiceError(
                f"the server's answer is none that this bylot knows ({error}); "
                "are client and server of the same version?"
            ) from None

    return read
