"""The page of the command line, from the very parser that reads it."""

import argparse
from collections.abc import Iterator

from bylot.cli import make_parser
from bylot.cli.options import DefaultsFormatter, VerbParser

HEAD = """# Command line

Generated from the parser when this site was built; `bylot --help` and `bylot VERB --help` print the
same. A verb exits with 0 on success, 1 for an error that it explains, 2 for wrong usage and 130 if
it was interrupted.

"""


def page() -> str:
    """Every verb with its usage and options, as Markdown."""
    return HEAD + "\n\n".join(section(verb) for verb in verbs(make_parser()))


def verbs(top: VerbParser) -> Iterator[VerbParser]:
    """The parsers that do something: those without verbs of their own."""
    below = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield top
    for action in below:
        for verb in action.choices.values():
            yield from verbs(verb)


def section(verb: VerbParser) -> str:
    """One verb."""
    verb.formatter_class = wide
    usage = verb.format_usage().removeprefix("usage: ").replace("\n       ", "\n").strip()
    said = verb.description or ""
    sentence = (said[:1].upper() + said[1:]).rstrip(".") + "."
    options = [option(verb, action) for action in verb._actions if action.dest != "help"]
    return "\n\n".join([f"## {verb.prog}", sentence, f"```console\n{usage}\n```", *options])


def wide(prog: str) -> argparse.HelpFormatter:
    """The width of a page, whatever the terminal's."""
    return DefaultsFormatter(prog, width=88)


def option(verb: argparse.ArgumentParser, action: argparse.Action) -> str:
    """What to write, and what it does."""
    formatter = verb._get_formatter()
    usual = formatter._get_default_metavar_for_optional
    if not action.option_strings:
        usual = formatter._get_default_metavar_for_positional
    words = f"{', '.join(action.option_strings)} {formatter._format_args(action, usual(action))}"
    said = formatter._expand_help(action).replace("*", r"\*")  # a pattern, no emphasis
    return f"`{words.strip()}`\n:   {said}"
