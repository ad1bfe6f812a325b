"""The configuration file of a server, in YAML or TOML: its fields, checked, or an error that names
the file, the line and the remedy.

No error shows a text that may be a secret. What the fields mean together is left to `provision`.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import structs

from bylot._text import join_words
from bylot.errors import BylotError, LocatedError, ProblemFileError
from bylot.gateway.config import GatewayEntry, ModelEntry, ScorerEntry
from bylot.gateway.router_models import SHORT_FIELDS
from bylot.problem_files.document import (
    AmbiguousScalar,
    Document,
    Keys,
    format_keys,
    parse_document,
)
from bylot.server.settings import (
    SETTINGS,
    TABLES,
    RouterEntry,
    explain_msgspec_error,
    suggest_field,
)

YAML_SUFFIXES = (".yaml", ".yml")
MAX_CONFIG_DEPTH = 64  # a JSON schema of answers may be deep
SECTIONS = tuple(dict.fromkeys(one.section for one in SETTINGS.values() if one.section))
ROUTER_FIELDS = tuple(name for name in RouterEntry.__struct_fields__ if name != "source")
MODEL_FIELDS = tuple(name for name in ModelEntry.__struct_fields__ if name != "place")
MODEL_LIST = "model_list"
TOP_NAMES = (*SECTIONS, *TABLES, MODEL_LIST)

LITELLM_SECTIONS: Mapping[str, Mapping[str, str]] = {
    "general_settings": {
        "master_key": "keys",
        "database_url": "store",
        "max_parallel_requests": "gateway.max_chats_per_key",
        "global_max_parallel_requests": "gateway.max_chats",
        "max_request_size_mb": "gateway.max_chat_body_bytes",
    },
    "router_settings": {
        "routing_strategy": "routers.NAME.policy",
        "num_retries": "routers.NAME.gateway.retries",
        "timeout": "routers.NAME.gateway.timeout_s",
        "allowed_fails": "routers.NAME.gateway.cooldown_after",
        "cooldown_time": "routers.NAME.gateway.cooldown_s",
        "fallbacks": "routers.NAME.gateway.refill",
    },
    "litellm_settings": {
        "num_retries": "routers.NAME.gateway.retries",
        "request_timeout": "routers.NAME.gateway.timeout_s",
        "allowed_fails": "routers.NAME.gateway.cooldown_after",
        "cooldown_time": "routers.NAME.gateway.cooldown_s",
        "fallbacks": "routers.NAME.gateway.refill",
        "max_budget": "limits of routers.NAME",
        "set_verbose": "log_level",
    },
    "environment_variables": {},
    "callback_settings": {},
    "credential_list": {},
    "guardrails": {},
    "mcp_servers": {},
    "search_tools": {},
    "vector_store_registry": {},
}
"""Sections of LiteLLM's configuration that are ignored, and what to use instead of their fields."""


class ConfigFile(NamedTuple):
    """Fields of `ServerSettings` by name, and warnings for the operator."""

    values: dict[str, Any]
    warnings: list[str]


def read_config_file(path: Path) -> ConfigFile:
    """Read a configuration; its suffix says whether it is YAML, else it is TOML."""
    reader = ConfigReader(parse_config(path))
    return ConfigFile(dict(reader.read()), reader.warnings)


def parse_config(path: Path) -> Document:
    """Parse a file; a file without entries is an empty mapping."""
    suffix = path.suffix.lower()
    document = Document(path, {}, max_depth=MAX_CONFIG_DEPTH, is_private=True, anchors={})
    try:
        text = path.read_text(encoding="utf-8-sig")
        lines = (line.strip() for line in text.splitlines())
        if suffix not in YAML_SUFFIXES:
            document.data = tomllib.loads(text)
        elif any(line and not line.startswith("#") for line in lines):
            parse_document(document, text, suffix)
    except OSError as error:
        remedy = "give another file with --config or $BYLOT_CONFIG"
        what = f"cannot be read: {error.strerror}"
        raise LocatedError(what, path=path, remedy=remedy) from None
    except ProblemFileError as error:
        remedy = (error.remedy or "").replace("problem per file", "configuration per file")
        raise LocatedError(error.what, path=path, line=error.line, remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        kind = "UTF-8" if isinstance(error, UnicodeError) else "TOML"
        said = "" if kind == "UTF-8" else f": {error}"
        raise LocatedError(f"not valid {kind}{said}", path=path) from None
    if not isinstance(document.data, dict):
        expected = "names of settings and their values"
        raise LocatedError("the file", path=path, line=1, expected=expected)
    return document


class ConfigReader:
    """Reads the fields of one file."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.is_yaml = document.path is not None and document.path.suffix.lower() in YAML_SUFFIXES
        self.warnings: list[str] = []

    def read(self) -> Iterator[tuple[str, Any]]:
        """The settings, tables and models of the file."""
        data = dict(self.document.data)
        self.skip_litellm_sections(data)
        parts = {name: data.pop(name) for name in TOP_NAMES if name in data}
        yield from self.read_section("", data)
        for name, part in parts.items():
            if name == MODEL_LIST:
                yield name, tuple(self.read_models(part))
                continue
            table = {} if part is None else part
            self.check_mapping((name,), table)
            if name in SECTIONS:
                yield from self.read_section(name, table)
            else:
                yield name, {label: self.read_entry(name, label) for label in table}

    def fail(self, keys: Keys, what: str, **parts: Any) -> LocatedError:
        """The error about an entry."""
        path, line = self.document.path, self.document.line(keys)
        return LocatedError(what, path=path, line=line, field=format_keys(keys), **parts)

    def warn(self, keys: Keys, text: str) -> None:
        self.warnings.append(f"{self.locate(keys)}: {text}")

    def locate(self, keys: Keys) -> str:
        """The file, and the line if it is known."""
        line = self.document.line(keys)
        return f"{self.document.path}, line {line}" if line else str(self.document.path)

    def skip_litellm_sections(self, data: dict[str, Any]) -> None:
        """Ignore what only LiteLLM has, and say what is used instead."""
        for name, equivalents in LITELLM_SECTIONS.items():
            if name not in data:
                continue
            given = data.pop(name)
            known = [one for one in equivalents if isinstance(given, dict) and one in given]
            instead = [f"instead of {one} use {equivalents[one]}" for one in known]
            if name == "environment_variables":
                instead = ["set the variables before the server starts"]
            self.warn((name,), "; ".join([f"{name} of LiteLLM is ignored", *instead]))

    def read_section(self, section: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The settings of a section; "" is the top of the file."""
        known = [key for key, one in SETTINGS.items() if one.section == section]
        place: Keys = (section,) if section else ()
        self.check_names(place, table, known if section else [*known, *TOP_NAMES])
        for key, value in table.items():
            self.check_scalars((*place, key), value)
            try:
                what = f"{section}.{key}".strip(".")
                yield key, SETTINGS[key].parse(value, what, strict=True)
            except BylotError as error:
                raise self.fail((*place, key), **vars(error)) from None

    def read_entry(self, table: str, name: str) -> Any:
        """An entry of a table; files in it are relative to the configuration file."""
        keys: Keys = (table, name)
        data = self.document.data[table][name]
        self.check_mapping(keys, data)
        if TABLES[table] is RouterEntry:
            return self.read_router(keys, data)
        self.check_names(keys, data, TABLES[table].__struct_fields__)
        self.check_scalars(keys, data)
        return self.convert(keys, data, TABLES[table])

    def read_router(self, keys: Keys, data: Mapping[str, Any]) -> RouterEntry:
        """A router: its problem is in another file, in a field, or in fields of its own."""
        self.check_names(keys, data, (*ROUTER_FIELDS, *SHORT_FIELDS))
        source = self.document.part(*keys)
        given, short = dict(data), [name for name in SHORT_FIELDS if name in data]
        problem = given.pop("problem", None)
        for name in short:
            del given[name]
        if problem is not None and short:
            what = f"{format_keys(keys)} has a problem and {short[0]}"
            raise self.fail((*keys, short[0]), what, remedy=f"write {short[0]} in the problem")
        if problem is None and "models" not in data:
            remedy = "write problem: FILE, or models: [NAMES] of model_list"
            raise self.fail(
                keys, f"{format_keys(keys)} has neither problem nor models", remedy=remedy
            )
        if problem is None:
            found: Any = self.document.part(*keys)
            found.data = {name: data[name] for name in short}
        elif isinstance(problem, dict):
            found = self.document.part(*keys, "problem")
        elif isinstance(problem, str) and problem:
            found = self.folder / problem
        else:
            expected = "the path of a problem file, or a problem"
            raise self.fail((*keys, "problem"), f"{format_keys(keys)}.problem", expected=expected)
        if "gateway" in given:
            given["gateway"] = self.spread_gateway((*keys, "gateway"), given["gateway"])
        self.check_scalars(keys, {name: x for name, x in given.items() if name != "gateway"})
        entry: RouterEntry = self.convert(keys, given, RouterEntry)
        return structs.replace(entry, problem=found, source=source)

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self.document.path.parent if self.document.path else Path()

    def spread_gateway(self, keys: Keys, given: Any) -> Any:
        """The entry of a gateway with all its names checked; `scorer: exact` is written out."""
        if given is None:
            return {}
        self.check_mapping(keys, given)
        self.check_names(keys, given, GatewayEntry.__struct_fields__)
        self.check_scalars(keys, {name: one for name, one in given.items() if name != "scorer"})
        scorer = given.get("scorer")
        if isinstance(scorer, str):
            scorer = {scorer: {}}
        if scorer is None:
            return given
        place = (*keys, "scorer")
        self.check_mapping(place, scorer)
        self.check_names(place, scorer, ScorerEntry.__struct_fields__)
        kinds = {name: {} if settings is None else settings for name, settings in scorer.items()}
        return {**given, "scorer": settle_scalars(kinds)}

    def read_models(self, given: Any) -> Iterator[ModelEntry]:
        """The entries of `model_list`; fields that only LiteLLM has are ignored."""
        if given is None:
            return
        if not isinstance(given, list):
            raise self.fail((MODEL_LIST,), MODEL_LIST, expected="a list of models")
        for n, data in enumerate(given):
            keys: Keys = (MODEL_LIST, n)
            self.check_mapping(keys, data)
            known = MODEL_FIELDS
            others = [name for name in data if name not in known]
            if others:
                self.warn(keys, f"{MODEL_LIST}[{n}]: ignored fields: {', '.join(others)}")
            given_fields = {
                name: settle_scalars(value) for name, value in data.items() if name in known
            }
            if given_fields.get("model_info", {}) is None:
                del given_fields["model_info"]
            entry: ModelEntry = self.convert(keys, given_fields, ModelEntry)
            if not entry.model_name.strip():
                raise self.fail(keys, f"{MODEL_LIST}[{n}].model_name", expected="a name")
            yield structs.replace(entry, place=self.locate(keys))

    def convert(self, keys: Keys, data: Mapping[str, Any], kind: Any) -> Any:
        """An entry of a type; the error names its field, and shows no value but a wrong choice."""
        folder = self.folder
        try:
            return msgspec.convert(data, kind, dec_hook=lambda _, text: folder / text)
        except (msgspec.ValidationError, TypeError) as error:
            said, _, path = str(error).partition(" - at `$")
            inner = tuple(
                int(index) if index else name for name, index in MSGSPEC_KEYS.findall(path)
            )
            place = (*keys, *inner)
            said = explain_msgspec_error(said)
            if choices := said.startswith("Invalid enum value") and list_words(kind, inner):
                said = f"{said.replace('Invalid enum', 'invalid')}: expected {choices}"
            raise self.fail(place, f"{format_keys(place)}: {said}") from None

    def check_mapping(self, keys: Keys, value: Any) -> None:
        """Refuse what is no mapping; the value is not shown, as it may be a secret."""
        if not isinstance(value, dict):
            name = format_keys(keys)
            expected = f"a mapping under {name}:" if self.is_yaml else f"a table [{name}]"
            raise self.fail(keys, name, expected=expected)

    def check_scalars(self, keys: Keys, value: Any) -> None:
        """Refuse words that other YAML programs read as something else."""
        if isinstance(value, dict | list):
            for key, one in value.items() if isinstance(value, dict) else enumerate(value):
                self.check_scalars((*keys, key), one)
        elif isinstance(value, AmbiguousScalar):
            what = f"{format_keys(keys)} is a number or date to some programs, text to others"
            raise self.fail(keys, what, remedy="put it in quotes, or write a plain number")

    def check_names(self, place: Keys, table: Mapping[str, Any], known: Iterable[str]) -> None:
        """Refuse an unknown field; it may be in another section."""
        known = list(known)
        for name in table:
            if name not in known:
                where = f" in {self.show_section(format_keys(place))}" if place else ""
                remedy = suggest_field(name, known)
                if name in SETTINGS and (not place or place[0] in SECTIONS):
                    remedy = f"move it {self.show_target(SETTINGS[name].section)}"
                raise self.fail((*place, name), f"unknown field {name!r}{where}", remedy=remedy)

    def show_section(self, name: str) -> str:
        return name if self.is_yaml else f"[{name}]"

    def show_target(self, section: str) -> str:
        """Where a setting belongs."""
        if self.is_yaml:
            return f"under {section}:" if section else "to the top level"
        return f"to [{section}]" if section else "above the first table"


MSGSPEC_KEYS = re.compile(r"\.(\w+)|\[(\d+)\]")


def settle_scalars(value: Any) -> Any:
    """A value with ambiguous words as texts, such as a version that looks like a date."""
    if isinstance(value, dict):
        return {key: settle_scalars(one) for key, one in value.items()}
    if isinstance(value, list):
        return [settle_scalars(one) for one in value]
    return value.text if isinstance(value, AmbiguousScalar) else value


def list_words(kind: Any, keys: Keys) -> str:
    """The words that a field of a type may have, for a message; empty if these are not all."""
    for key in keys:
        hint = get_type_hints(kind).get(str(key)) if isinstance(key, str) else None
        inner = [one for one in (hint, *get_args(hint)) if isinstance(one, type)]
        kind = next((one for one in inner if issubclass(one, msgspec.Struct)), hint)
    kinds = [kind, *get_args(kind)]
    words = [word for one in kinds if get_origin(one) is Literal for word in get_args(one)]
    return join_words(map(repr, words), "or")
