"""Texts that callers give, and that a log must be able to hold."""

from bylot.errors import DecisionError


def check_text(what: str, text: str | None) -> None:
    """Refuse what is no text, or one that cannot be written down, such as half of a character."""
    if text is None or (isinstance(text, str) and text.isascii()):
        return
    try:
        text.encode()
    except (AttributeError, UnicodeError):
        raise DecisionError(f"{what} {text!r} is not a text that can be kept") from None
