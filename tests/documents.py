"""Documents that run: the fenced blocks of a page, and what is done with each kind."""

import re
import shlex
from typing import Any

import pytest


def blocks(page: str, kind: str) -> list[str]:
    """The fenced blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def follow(page: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the Python blocks in order, as a reader would paste them into one session; they print
    what the text blocks show.
    """
    names: dict[str, Any] = {}
    for code in blocks(page, "python"):
        exec(compile(code, name, "exec"), names)
    printed = capsys.readouterr().out
    for shown in blocks(page, "text"):
        assert shown in printed


def commands(page: str) -> list[list[str]]:
    """The words of every line of the console blocks, comments left out; a line that ends in a
    backslash goes on in the next.
    """
    whole = [block.replace("\\\n", " ") for block in blocks(page, "console")]
    lines = [line for block in whole for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]
