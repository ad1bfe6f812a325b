"""The configuration file of a server, in YAML or TOML: its fields, checked, or an error that names
the file, the line and the remedy.

No error shows a text that may be a secret. What the fields mean together is left to `provision`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from bylot.errors import BylotError, LocatedError
from bylot.gateway.config import ModelEntry
from bylot.gateway.router_models import SHORT_FIELDS
from bylot.problem_files.document import (
    AmbiguousScalar,
    Document,
    Keys,
    format_keys,
    parse_document,
)
from bylot.server.field_errors import explain_fault, find_struct, find_type
from bylot.server.settings import (
    SETTINGS,
    TABLES,
    RouterEntry,
    suggest_field,
)

YAML_SUFFIXES = (".yaml", ".yml")
MAX_CONFIG_DEPTH = 64  # a JSON schema of answers may be deep
SECTIONS = tuple(dict.fromkeys(one.section for one in SETTINGS.values() if one.section))
ROUTER_FIELDS = tuple(name for name in RouterEntry.__struct_fields__ if name != "source")
MODEL_FIELDS = tuple(name for name in ModelEntry.__struct_fields__ if name != "place")
MODEL_LIST = "model_list"
PROBLEM_KEYS = [(name,) for name in ("problem", *SHORT_FIELDS)]  # of a router
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


def parse_config(path: Path) -> Document:
    """Parse a file; its suffix says whether it is YAML, else it is TOML.

    A file without entries is an empty mapping.
    """
    document = Document(path, {}, max_depth=MAX_CONFIG_DEPTH, is_private=True, anchors={})
    document.kind = LocatedError
    document.noun = "configuration"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise document.error(
            (),
            f"cannot be read: {error.strerror}",
            remedy="give another file with --config or $BYLOT_CONFIG",
        ) from None
    except UnicodeError:
        raise document.error((), "not valid UTF-8") from None
    if any(line.strip() and not line.strip().startswith("#") for line in text.splitlines()):
        suffix = path.suffix.lower()
        parse_document(document, text, suffix if suffix in YAML_SUFFIXES else ".toml")
    if not isinstance(document.data, dict):
        raise document.error((), "the file", line=1, expected="names of settings and their values")
    return document


class ConfigReader:
    """Reads the fields of one file: those of `ServerSettings`, and warnings for the operator."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.folder = document.path.parent if document.path else Path()
        self.is_yaml = document.path is not None and document.path.suffix.lower() in YAML_SUFFIXES
        self.warnings: list[str] = []

    def read(self) -> Iterator[tuple[str, Any]]:
        """The settings, tables and models of the file."""
        data = dict(self.document.data)
        self.skip_litellm_sections(data)
        data = self.settle_scalars((), data)
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
                yield name, {label: self.read_entry((name, label), x) for label, x in table.items()}

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
            try:
                yield key, SETTINGS[key].parse(value, f"{section}.{key}".strip("."), strict=True)
            except BylotError as error:
                raise self.document.error((*place, key), **vars(error)) from None

    def read_entry(self, keys: tuple[str, str], data: Any) -> Any:
        """An entry of a table; files in it are relative to the configuration file."""
        self.check_mapping(keys, data)
        if keys[0] == "routers":
            return self.read_router(keys, data)
        return self.convert(keys, data, TABLES[keys[0]])

    def read_router(self, keys: Keys, data: Mapping[str, Any]) -> RouterEntry:
        """A router: its problem is in another file, in a field, or in fields of its own."""
        self.check_names(keys, data, (*ROUTER_FIELDS, *SHORT_FIELDS))
        short = [name for name in SHORT_FIELDS if name in data]
        given = {name: x for name, x in data.items() if name not in ("problem", *short)}
        problem = data.get("problem")
        if problem is not None and short:
            raise self.document.error(
                (*keys, short[0]),
                f"{format_keys(keys)} has a problem and {short[0]}",
                remedy=f"write {short[0]} in the problem",
            )
        if problem is None and "models" not in data:
            raise self.document.error(
                keys,
                f"{format_keys(keys)} has neither problem nor models",
                remedy="write problem: FILE, or models: [NAMES] of model_list",
            )
        if problem is None:
            found: Any = self.document.part(*keys)
            found.data = {name: data[name] for name in short}
        elif isinstance(problem, dict):
            found = self.document.part(*keys, "problem")
        elif isinstance(problem, str) and problem:
            found = self.folder / problem
        else:
            raise self.document.error(
                (*keys, "problem"),
                f"{format_keys(keys)}.problem",
                expected="the path of a problem file, or a problem",
            )
        if "gateway" in given:
            given["gateway"] = self.spread_gateway((*keys, "gateway"), given["gateway"])
        entry: RouterEntry = self.convert(keys, given, RouterEntry)
        return structs.replace(entry, problem=found, source=self.document.part(*keys))

    def spread_gateway(self, keys: Keys, given: Any) -> Any:
        """The entry of a gateway in full: `scorer: exact` is written out."""
        if given is None:
            return {}
        self.check_mapping(keys, given)
        scorer = given.get("scorer")
        if isinstance(scorer, str):
            scorer = {scorer: {}}
        if scorer is None:
            return given
        self.check_mapping((*keys, "scorer"), scorer)
        kinds = {name: {} if settings is None else settings for name, settings in scorer.items()}
        return {**given, "scorer": kinds}

    def read_models(self, given: Any) -> Iterator[ModelEntry]:
        """The entries of `model_list`; fields that only LiteLLM has are ignored."""
        if given is None:
            return
        if not isinstance(given, list):
            raise self.document.error((MODEL_LIST,), MODEL_LIST, expected="a list of models")
        for n, data in enumerate(given):
            keys: Keys = (MODEL_LIST, n)
            self.check_mapping(keys, data)
            others = [name for name in data if name not in MODEL_FIELDS]
            if others:
                self.warn(keys, f"{MODEL_LIST}[{n}]: ignored fields: {', '.join(others)}")
            fields = {name: value for name, value in data.items() if name in MODEL_FIELDS}
            if fields.get("model_info", {}) is None:
                del fields["model_info"]
            entry: ModelEntry = self.convert(keys, fields, ModelEntry)
            if not entry.model_name.strip():
                raise self.document.error(keys, f"{MODEL_LIST}[{n}].model_name", expected="a name")
            yield structs.replace(entry, place=self.locate(keys))

    def convert(self, keys: Keys, data: Mapping[str, Any], kind: Any) -> Any:
        """An entry of a type; the error names its field, and shows no value but a wrong choice."""
        try:
            return msgspec.convert(data, kind, dec_hook=lambda _, text: self.folder / text)
        except (msgspec.ValidationError, TypeError) as error:
            text, path, unknown = explain_fault(error, kind)
            inner = [int(index) if index else name for index, name in KEYS.findall(path)]
            place = (*keys, *inner)
            if unknown:
                known = find_struct(find_type(kind, path)).__struct_fields__
                self.check_names(place, [unknown], known)
            raise self.document.error(place, f"{format_keys(place)}: {text}") from None

    def check_mapping(self, keys: Keys, value: Any) -> None:
        """Refuse what is no mapping; the value is not shown, as it may be a secret."""
        if not isinstance(value, dict):
            name = format_keys(keys)
            raise self.document.error(
                keys,
                name,
                expected=f"a mapping under {name}:" if self.is_yaml else f"a table [{name}]",
            )

    def settle_scalars(self, keys: Keys, value: Any) -> Any:
        """A value in which words that other YAML programs read as something else are texts, such as
        the version of a model; they are refused where no text is expected, and left in problems.
        """
        if isinstance(value, dict):
            return {key: self.settle_scalars((*keys, key), x) for key, x in value.items()}
        if isinstance(value, list):
            return [self.settle_scalars((*keys, n), x) for n, x in enumerate(value)]
        if not isinstance(value, AmbiguousScalar) or keys[2:3] in PROBLEM_KEYS:
            return value
        if keys[0] == MODEL_LIST or keys[2:4] == ("gateway", "scorer"):
            return value.text
        raise self.document.error(
            keys,
            f"{format_keys(keys)} is a number or date to some programs, text to others",
            remedy="put it in quotes, or write a plain number",
        )

    def check_names(self, place: Keys, names: Iterable[str], known: Iterable[str]) -> None:
        """Refuse an unknown field; it may be in another section."""
        known = list(known)
        for name in names:
            if name not in known:
                section = format_keys(place) if self.is_yaml else f"[{format_keys(place)}]"
                where = f" in {section}" if place else ""
                remedy = suggest_field(name, known)
                if name in SETTINGS and (not place or place[0] in SECTIONS):
                    remedy = f"move it {self.show_target(SETTINGS[name].section)}"
                raise self.document.error(
                    (*place, name), f"unknown field {name!r}{where}", remedy=remedy
                )

    def show_target(self, section: str) -> str:
        """Where a setting belongs."""
        if self.is_yaml:
            return f"under {section}:" if section else "to the top level"
        return f"to [{section}]" if section else "above the first table"


KEYS = re.compile(r"\[(\d+)\]|(\w+)")  # of a path such as scopes[0]
