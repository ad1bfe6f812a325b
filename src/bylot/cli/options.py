"""What several verbs share: the parser class, option types, and the options of servers, stores,
policies and scenarios. Nothing here imports the compiler, so that `bylot --help` is quick.
"""

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bylot._text import PASS_FAIL_WORDS, find_similar
from bylot._windows import WINDOW_WORDS
from bylot.errors import AccessDenied, BylotError, ServerUnreachable, install_command
from bylot.server.settings import SETTINGS, LoadedSettings, load_settings

if TYPE_CHECKING:
    from bylot.client import Client
    from bylot.policies import Auto, Policy
    from bylot.problem_files import ProblemFile
    from bylot.scenario import Scenario

DEFAULT_SERVER = "http://127.0.0.1:8000"
POLICY_HELP = (
    "{policies}. Settings follow a colon, as in distinct:eps=0.05,guard=false or "
    "auto:propensities=false,contexts=20 (see docs/policies.md)"
)

Number = TypeVar("Number", int, float)
RunVerb = Callable[[argparse.Namespace], int | None]
"""Runs a verb and returns its exit code; None is 0."""


class VerbParser(argparse.ArgumentParser):
    """A parser with short ways to add the options that verbs have in common."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": DefaultsFormatter, **settings})

    def add_option(self, name: str, metavar: str | None, text: str, parse: Any = str) -> None:
        """Add an option that takes a value, by default None."""
        self.add_argument(name, type=parse, metavar=metavar, help=text)

    def add_flag(self, name: str, text: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, action="store_true", help=text)

    def add_count(self, name: str, default: int | None, text: str) -> None:
        """Add an option that takes a positive whole number."""
        self.add_argument(name, type=parse_positive, default=default, metavar="COUNT", help=text)

    def add_path(self, name: str, text: str, default: str | None = None) -> None:
        """Add an option that takes a file or folder."""
        self.add_argument(name, type=Path, default=default, metavar="PATH", help=text)

    def add_list(self, name: str, metavar: str, text: str, parse: Any = str) -> None:
        """Add an option that may be repeated."""
        self.add_argument(name, type=parse, action="append", default=[], metavar=metavar, help=text)

    def add_choice(self, name: str, choices: Sequence[str], text: str) -> None:
        """Add an option that takes one of some words, by default the first."""
        self.add_argument(name, choices=choices, default=choices[0], help=text)

    def add_policies(self, text: str, default: Sequence[str]) -> None:
        """Add the option that takes one or several policies, and may be repeated."""
        text += f", repeatable or comma-separated: {POLICY_HELP} (default: {','.join(default)})"
        names: dict[str, Any] = {"type": split_policies, "action": "extend", "metavar": "NAMES"}
        self.add_argument("--policy", **names, help=text)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the words of a verb, and refuse unknown options with a suggestion."""
        known, others = super().parse_known_args(args, namespace)
        if others:
            close = find_similar(others[0].partition("=")[0], self._option_string_actions)
            meant = f"did you mean {close}?" if close else f"`{self.prog} --help` lists all options"
            self.error(f"unrecognized arguments: {' '.join(others)}; {meant}")
        return known, others

    def error(self, message: str) -> NoReturn:
        """Exit with the message, and with a hint if a policy is given by another name."""
        if "unrecognized" in message and "--polic" in message and "did you mean" not in message:
            message += "; give policies with --policy, or with --target to `bylot evaluate`"
        super().error(message)

    def add_seed(self) -> None:
        self.add_argument("--seed", type=parse_natural, default=0, metavar="N", help="random seed")

    def add_range(self, text: str) -> None:
        self.add_argument("--rewards", type=float, nargs=2, metavar=("LOW", "HIGH"), help=text)

    def add_json(self) -> None:
        self.add_flag("--json", "print one JSON object and nothing else")

    def add_server(self) -> None:
        """Add the address of a server, the API key, and --json."""
        self.add_option(
            "--server", "URL", f"server URL (default: $BYLOT_SERVER or {DEFAULT_SERVER})"
        )
        self.add_option(
            "--key",
            None,
            "API key (default: $BYLOT_KEY, which other users of this machine cannot see)",
        )
        self.add_json()

    def add_settings(self, *names: str) -> None:
        """Add --config and the flags of settings of a server."""
        self.add_path("--config", "configuration file of the server (default: $BYLOT_CONFIG)")
        for one in (SETTINGS[name] for name in names):
            default = "" if one.default is None else f" or {one.default}"
            self.add_argument(
                one.flag,
                type=one.parse_flag,
                choices=one.choices or None,
                help=f"{one.text} (default: ${one.variable}{default})",
            )

    def add_problem(self) -> None:
        """Add the problem file, and the experts file that can replace the one it names."""
        self.add_argument(
            "file", type=Path, metavar="PROBLEM", help="problem file (.yaml, .toml or .json)"
        )
        self.add_path("--experts", "CSV file of experts, instead of the problem file's")

    def add_traffic(self) -> None:
        """Add the requests per day, for limits of the calendar."""
        self.add_option(
            "--traffic",
            "REQUESTS",
            f"requests per day, for limits per {WINDOW_WORDS} (default: the traffic of "
            "the problem file)",
            parse_amount,
        )


class DefaultsFormatter(argparse.HelpFormatter):
    """Append the default of an option to its help, if that states none; fill in all policies."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if "{policies}" in text:
            from bylot.policies import POLICY_NAMES

            text = text.format(policies=", ".join(POLICY_NAMES))
        unset = any(action.default is value for value in (None, False, argparse.SUPPRESS))
        if not text or "(default" in text or unset or action.default == []:
            return text
        return f"{text} (default: %(default)s)"


def add_verb(verbs: Any, name: str, run: RunVerb, summary: str, more: str = "") -> VerbParser:
    """Add a verb that calls `run`; the summary stands in the list of verbs, `more` in its help."""
    verb: VerbParser = verbs.add_parser(name, help=summary, description=more or summary)
    verb.set_defaults(run=run)
    return verb


def add_named_verb(verbs: Any, name: str, *rest: Any) -> VerbParser:
    """Add a verb about one router of a server."""
    verb = add_verb(verbs, name, *rest)
    verb.add_argument("name", metavar="NAME", help="name of the router")
    verb.add_server()
    return verb


def add_group(verbs: Any, name: str, summary: str) -> Any:
    """Add a verb that has verbs of its own."""
    group = verbs.add_parser(name, help=summary, description=summary)
    return group.add_subparsers(title="verbs", metavar="VERB", required=True)


def make_number_parser(
    kind: Callable[[str], Number], accepts: Callable[[Number], bool], expected: str
) -> Callable[[str], Number]:
    """Make an option type: argparse names the option if it raises."""

    def parse(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not accepts(value):
            raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected {expected}")
        return value

    return parse


parse_natural = make_number_parser(int, lambda n: n >= 0, "a whole number of 0 or more")
parse_positive = make_number_parser(
    int, lambda n: 1 <= n <= 1_000_000, "a whole number from 1 to 1,000,000"
)
parse_fraction = make_number_parser(float, lambda x: 0 < x < 1, "a number between 0 and 1")
parse_amount = make_number_parser(float, lambda x: 0 <= x < math.inf, "a number of 0 or more")
FEEDBACK_KINDS = ["panel", "members", "winner"]
FEEDBACK_HELP = (
    "what is reported: the reward of a panel, also scores of its members, or also its winner"
)

parse_reward = make_number_parser(
    lambda text: float(PASS_FAIL_WORDS.get(text.lower(), text)),
    math.isfinite,
    "a number, or a word such as pass or fail",
)


def read_settings(given: argparse.Namespace) -> LoadedSettings:
    """The settings from the flags of a verb, the environment and the configuration file."""
    flags = {name: getattr(given, name, None) for name in SETTINGS}
    used = {name: value for name, value in flags.items() if value is not None}
    return load_settings(used, given.config)


def parse_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def parse_named_amount(text: str) -> tuple[str, float]:
    """Parse NAME=AMOUNT."""
    name, _, value = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(
            f"invalid value {text!r}: expected NAME=AMOUNT, such as usd=2.5"
        )
    return name, float(value)


def print_result(given: argparse.Namespace, data: Any, text: str) -> None:
    """Print the result of a verb: its data with --json, else its text."""
    from msgspec import to_builtins

    print(json.dumps(data, default=to_builtins) if given.json else text)


@contextmanager
def explain_missing_extra(extra: str) -> Iterator[None]:
    """Turn the failed import of a package of an extra into an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("bylot"):
            raise
        raise BylotError(f"this verb needs {error.name}", remedy=install_command(extra)) from None


@contextmanager
def connect_client(given: argparse.Namespace) -> Iterator["Client"]:
    """Make the client for the server options, which its errors name."""
    from bylot.client import Client

    url = given.server or os.environ.get("BYLOT_SERVER") or DEFAULT_SERVER
    key = given.key or os.environ.get("BYLOT_KEY") or None
    try:
        with Client(url, key, retries=5) as client:  # fewer than in programs: a person waits
            yield client
    except ServerUnreachable as error:
        if "address" in (error.remedy or ""):
            error.remedy = f"{error.remedy}; --server or $BYLOT_SERVER gives another address"
        raise
    except AccessDenied as error:
        error.remedy = "give a key that may do this with --key or $BYLOT_KEY"
        raise


def add_scenario_options(verb: VerbParser) -> None:
    """Add the problem file and the source of its experts' values."""
    verb.add_problem()
    values = verb.add_mutually_exclusive_group()
    values.add_argument(
        "--outcomes",
        type=Path,
        metavar="PATH",
        help="CSV or Parquet table, one row per question and one column per expert: how well the "
        "expert answered, from 0 to 1, blank if it did not",
    )
    values.add_argument(
        "--skills",
        type=Path,
        metavar="PATH",
        help="table, one row per dimension and one column per expert: mean values from 0 to 1. "
        "Without --outcomes or --skills, skills are made up and every result says so",
    )
    values.add_argument(
        "--aslib",
        type=Path,
        metavar="FOLDER",
        help="folder of a scenario of the algorithm selection library (ASlib); the experts are its "
        "algorithms, and a request is solved if one of a panel solves it within the cut-off",
    )
    verb.add_path("--questions", "table that describes the questions (default: that of --outcomes)")
    verb.add_option(
        "--dimension",
        "COLUMN",
        "column with the dimension of a question; a request asks one question of each dimension "
        "(default: the second column of --questions, or no dimensions)",
    )
    verb.add_option(
        "--context",
        "COLUMN",
        "column with the context of a question; a request asks questions of its own context "
        "(default: questions do not depend on the context)",
    )


def read_scenario(given: argparse.Namespace) -> tuple["ProblemFile", "Scenario"]:
    """Read the problem file and the scenario that the options describe."""
    from bylot import problem_files, scenario
    from bylot.outcome_tables.sheets import open_sheet

    for option in ("questions", "dimension", "context", "time"):
        if getattr(given, option, None) is not None and given.outcomes is None:
            raise BylotError(
                f"--{option} describes --outcomes, which is missing", remedy="add --outcomes"
            )
    file = problem_files.read(given.file, given.experts)
    if given.skills is not None:
        return file, scenario.scenario_from_skills(file, given.skills)
    if given.aslib is not None:
        return file, scenario.scenario_from_aslib(file, given.aslib)
    if given.outcomes is None:
        return file, scenario.synthetic_scenario(file)
    dimension = given.dimension
    if dimension is None and given.questions is not None and given.context is None:
        dimension = open_sheet(given.questions).columns[1]
    return file, scenario.scenario_from_outcomes(
        file, given.outcomes, given.questions, dimension, given.context
    )


def require_windows(file: "ProblemFile", remedy: str) -> None:
    """Refuse a traffic for a problem without limits of the calendar."""
    if file.window is None:
        raise BylotError(
            f"--traffic is for limits per {WINDOW_WORDS}, and the problem has none", remedy=remedy
        )


def apply_traffic(file: "ProblemFile", traffic: float | None) -> "ProblemFile":
    """The problem file at the traffic of --traffic, if that is given."""
    if traffic is None:
        return file
    require_windows(file, "leave it out")
    return file.at_traffic(traffic)


def split_policies(text: str) -> list[str]:
    """Split a comma-separated list of policies, whose settings contain commas too.

    >>> split_policies("distinct, tangent:eps=0.02,guard=false,omd")
    ['distinct', 'tangent:eps=0.02,guard=false', 'omd']
    """
    found: list[str] = []
    for part in text.split(","):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part.strip()}"
        else:
            found.append(part.strip())
    return found


def format_policy(policy: "Policy | Auto") -> str:
    """Write a policy as it can be given here: its name and the settings that differ."""
    from bylot.policies import POLICIES, POLICY_CLASSES, policy_to_data

    data = policy_to_data(policy)
    own: str = data.pop("name")
    for name in (own, *POLICY_CLASSES[own].variants):
        if policy == POLICIES[name]:
            return name
    defaults = policy_to_data(POLICIES[own])
    changed = [f"{key}={value}" for key, value in data.items() if value != defaults[key]]
    return f"{own}:{','.join(changed)}"
