"""Runs documents: the fenced blocks of a page, and the commands in them."""

import re
import shlex
from typing import Any

import pytest


def find_blocks(page: str, kind: str) -> list[str]:
    """The fenced blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def run_page(page: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the Python blocks of a page in one session; they must print its text blocks."""
    names: dict[str, Any] = {}
    for code in find_blocks(page, "python"):
        exec(compile(code, name, "exec"), names)
    printed = capsys.readouterr().out
    for shown in find_blocks(page, "text"):
        assert shown in printed


def find_commands(page: str) -> list[list[str]]:
    """The words of every command in the console blocks, without comments.

    A line that ends in a backslash continues in the next.
    """
    joined = [block.replace("\\\n", " ") for block in find_blocks(page, "console")]
    lines = [line for block in joined for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]
