"""The form of a problem file: its keys, what each may hold, and what each means."""

import json
from importlib.resources import files
from typing import Any

from bylot.files.shape import Choice, Either, Field, Many, Name, Number, Record, Table, Text
from bylot.problem.reading import MOST_DRAWS

COST = Number(least=0)
NAMES = Either((Name(), Many(Name())))

EXPERT = Record(
    {
        "name": Field(Name(), "the name of the expert, which no other expert has", True),
        "group": Field(NAMES, "the group the expert belongs to, or a list of groups"),
    },
    others=COST,
    wanted="{name: ..., and each cost of the expert}",
)

SHEET = Record(
    {
        "csv": Field(
            Name("the name of a file"),
            "a CSV file with a line for each expert, beside this file: a header, the names of the "
            "experts in its first column, and a column for each cost",
            True,
        ),
        "group": Field(
            NAMES,
            "the column that holds the group of each expert, or a list of such columns; the "
            "column called group, if there is one and this is left out",
        ),
    },
    wanted="{csv: the name of a file}",
)

BY_COLUMN = Record(
    {
        "column": Field(Name(), "a column of numbers in the CSV file", True),
        "at_least": Field(Number(), "members have this number there or more"),
        "at_most": Field(Number(), "members have this number there or less"),
        "blank": Field(Choice(("in", "out")), "is an expert without a number there a member?"),
    },
    any_of=("at_least", "at_most"),
    wanted="{column: ..., at_least: ...}",
)

LIMIT = Record(
    {
        "cost": Field(Name(), "the cost that is limited"),
        "group": Field(Name(), "the group whose members are counted"),
        "at_most": Field(COST, "the average stays at or under this"),
        "at_least": Field(COST, "the average stays at or above this"),
        "per": Field(
            Choice(("request", "draw")),
            "request: what all experts consulted for a request cost together, or how many of them "
            "are of the group, on average; draw: the same divided by draws, so that at_least: 0.04 "
            "of a group is 4% of the draws",
            True,
        ),
    },
    one_of=("cost", "group"),
    any_of=("at_most", "at_least"),
    wanted="{cost or group: ..., at_most or at_least: ..., per: request or draw}",
)

REWARDS = Record(
    {
        "from": Field(Number(), "the lowest reward a panel can have", True),
        "to": Field(Number(), "the highest reward a panel can have", True),
    },
    wanted="{from: 0, to: 1}",
)

FORM = Record(
    {
        "$schema": Field(Text(), "where an editor finds this schema; not read"),
        "draws": Field(
            Number(least=1, most=MOST_DRAWS, whole=True),
            "how many experts are drawn for each request",
            True,
        ),
        "floor": Field(
            Number(above=0, most=0.5),
            "the least probability that the paper's policies give any expert in a draw; "
            "1/(10 x number of experts) if it is left out",
        ),
        "period": Field(
            Number(least=1, most=2**62 - 1, whole=True),
            "the number of requests at whose end all limits are to hold, again and again",
        ),
        "rewards": Field(REWARDS, "the range of rewards; from 0 to 1 if it is left out"),
        "contexts": Field(
            Either((Many(Name(), 1), Table(Number(above=0), 1))),
            "kinds of requests, each of which learns its own preferences: a list of names, or "
            "names with weights, how often each comes in comparison with the others",
        ),
        "costs": Field(
            Table(Text()),
            "each cost that experts have, with its unit, such as usd: US dollars per consultation",
        ),
        "experts": Field(
            Either((Many(EXPERT, 2), SHEET)),
            "the pool: a list of experts, or the CSV file that has them",
            True,
        ),
        "groups": Field(
            Table(Either((Many(Name(), 1), BY_COLUMN))),
            "further groups: lists of experts, or rules on a column of the CSV file",
        ),
        "limits": Field(
            Many(LIMIT), "what was promised: long-run averages over requests, whatever the context"
        ),
    },
    wanted="draws, costs, experts and limits",
)


def schema() -> dict[str, Any]:
    """The form as JSON Schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A problem for bylot",
        "description": "Experts to draw from, what they cost, and what was promised.",
        **FORM.schema(),
    }


def published() -> str:
    """The schema as it comes with the package."""
    return packaged("problem.schema.json")


def starter() -> str:
    """A small problem, with comments, to start from."""
    return packaged("starter.yaml")


def packaged(name: str) -> str:
    """A file of this package."""
    return files("bylot.files").joinpath(name).read_text(encoding="utf-8")


def printed(made: dict[str, Any]) -> str:
    """A schema as it is published."""
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"
