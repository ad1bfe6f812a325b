"""Redaction of the keys of an endpoint in what it sends: errors that quote them, and answers.

An endpoint that wants to give its key away can always do so. This is about those that quote what
they were sent, in whatever encoding.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress

REDACTED = "[redacted]"
MIN_SECRET_CHARS = 6  # shorter ones are placeholders, such as `none`
MIN_KEY_CHARS = 16  # in an answer, where a shorter one may be a word
KEY_HEADER = re.compile("auth|key|token|secret|cookie")
SCHEME = re.compile("^(bearer|basic|token) +", re.IGNORECASE)


class Redactor:
    """Hides what an endpoint is sent and no caller may read.

    pattern: values of headers, and the URL, in all encodings; None: there are none
    keys:    values of headers that are keys, as they are
    """

    def __init__(self, headers: Mapping[str, str], base: str) -> None:
        values = {name: SCHEME.sub("", value) for name, value in headers.items()}
        values.pop("content-type", None)
        parts = [part for name in values for part in list_secrets(headers[name])]
        secrets = [text for text in (*parts, base) if len(text) >= MIN_SECRET_CHARS]
        encodings = [encoding for secret in secrets for encoding in list_encodings(secret)]
        self.pattern = re.compile("|".join(encodings), re.IGNORECASE) if encodings else None
        self.keys = [
            value.encode()
            for name, value in values.items()
            if KEY_HEADER.search(name) and len(value) >= MIN_KEY_CHARS
        ]

    def hide(self, text: str) -> str:
        """Return a text of an error without secrets.

        >>> Redactor({"authorization": "Bearer sk-1234567"}, "").hide("wrong key %73k-1234567!")
        'wrong key [redacted]!'
        """
        return text if self.pattern is None else self.pattern.sub(REDACTED, text)

    def hide_keys(self, content: bytes) -> bytes:
        """Return an answer without keys. Encodings are not looked for, as this reads every byte."""
        for key in self.keys:
            content = content.replace(key, REDACTED.encode())
        return content


def list_secrets(value: str) -> Iterator[str]:
    """Yield a header value without its scheme, the parts of a cookie, and a password.

    >>> list(list_secrets("id=s3cret-1; x=s3cret-2"))
    ['id=s3cret-1; x=s3cret-2', 's3cret-1', 's3cret-2']
    >>> list(list_secrets("Basic YW5uOnMzY3JldA=="))
    ['YW5uOnMzY3JldA==', 'ann:s3cret', 's3cret']
    """
    plain = SCHEME.sub("", value)
    yield plain
    yield from re.findall("=([^=;]{6,})(?:;|$)", plain)
    if value[:6].lower() == "basic ":
        with suppress(ValueError):  # it is not Base64 of a text
            login = b64decode(plain, validate=True).decode()
            yield login
            yield login.partition(":")[2]


def list_encodings(secret: str) -> Iterator[str]:
    """Yield patterns of a secret: as it is or with some of its characters escaped, in hexadecimal,
    and in Base64 from each of the three places in a group of bytes at which it may begin.
    """
    yield "".join(map(escape_chars, re.findall(r"\\+|[^\\]", secret)))
    content = secret.encode()
    yield content.hex()
    for before in range(3):
        size = before + len(content)
        text = b64encode(bytes(before) + content).decode()
        own = text[-(-before * 8 // 6) : size * 8 // 6]  # characters without bits of neighbours
        yield re.escape(own).replace(r"\+", "[+-]").replace("/", "[/_]")


def escape_chars(chars: str) -> str:
    """Return the pattern of a character: as it is, or as an escape of JSON, of a URL or of HTML.

    Repetitions are bounded, and a run of backslashes is one of them, so that a search takes linear
    time.
    """
    if chars.startswith("\\"):
        return rf"(?:\\{{{len(chars)},{4 * len(chars)}}}|(?:%(?:25){{0,2}}5c){{{len(chars)}}})"
    code = ord(chars)
    shapes = (
        rf"\\{{0,4}}{re.escape(chars)}",
        rf"\\{{1,4}}u00{code:02x}",
        rf"%(?:25){{0,2}}{code:02x}",
        rf"&#(?:0{{0,4}}{code}|x0{{0,4}}{code:x});",
    )
    return f"(?:{'|'.join(shapes)})"
