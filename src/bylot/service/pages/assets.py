"""Style, scripts and icon of the pages: files of this package, under an address that names their
content, so that browsers may keep them for ever and never have an old one.
"""

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file to send."""

    content: bytes
    type: str


@cache
def assets() -> dict[str, Asset]:
    """All of them, by name."""
    folder = files("bylot.service.pages") / "static"
    return {
        file.name: Asset(file.read_bytes(), TYPES[file.name.rpartition(".")[2]])
        for file in sorted(folder.iterdir(), key=lambda one: one.name)
        if file.name.rpartition(".")[2] in TYPES
    }


@cache
def folder() -> str:
    """The path that all are under; scripts find each other beside themselves."""
    digest = hashlib.sha256()
    for name, asset in assets().items():
        digest.update(name.encode() + b"\0" + asset.content + b"\0")
    return f"/assets/{digest.hexdigest()[:16]}"


def address(name: str) -> str:
    """Where an asset is."""
    return f"{folder()}/{name}"
