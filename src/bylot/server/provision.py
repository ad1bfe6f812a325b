"""What a configuration declares, made real when a server starts: its API keys and its routers."""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing

from bylot import problem_files
from bylot.errors import BylotError, RouterExists
from bylot.eventlog.commands import CreateRouter, check_router_name
from bylot.eventlog.config_validation import validate_config
from bylot.eventlog.events import now_us
from bylot.eventlog.repository import LEASE_S, read_stored_config
from bylot.router.config import RouterConfig
from bylot.server.auth import digest_secret
from bylot.server.config_requests import config_from_file
from bylot.server.settings import KeyEntry, RouterEntry
from bylot.server.writer import make_command_handler
from bylot.store import ApiKey, Store

log = logging.getLogger("bylot.server")

KEY_TEXT = re.compile(r"bylot_([0-9a-f]{12})_([0-9a-f]{48})")
KEY_DIGEST = re.compile(r"([0-9a-f]{12}):([0-9a-f]{64})")


def build_keys(
    entries: Mapping[str, KeyEntry], environ: Mapping[str, str] = os.environ
) -> dict[str, ApiKey]:
    """The declared keys by id; no error shows a secret."""
    found: dict[str, ApiKey] = {}
    for label, entry in entries.items():
        what = f"keys.{label}"
        if sum(one is not None for one in (entry.file, entry.env, entry.digest)) != 1:
            raise BylotError(what, expected="one of file, env and digest")
        if KEY_TEXT.search(f"{entry.file} {entry.env}"):
            remedy = "give the name of the file or of the variable that contains it"
            raise BylotError(f"{what}: file or env is the key itself", remedy=remedy)
        if entry.digest is not None:
            parts = KEY_DIGEST.fullmatch(entry.digest)
            digest = bytes.fromhex(parts[2]) if parts else b""
        else:
            parts = KEY_TEXT.fullmatch(read_secret(what, entry, environ))
            digest = digest_secret(parts[2]) if parts else b""
        if parts is None:
            source = "its digest" if entry.digest else entry.env or entry.file
            remedy = "make one with `bylot keys create --for-config`"
            raise BylotError(f"{what}: {source} contains no API key", remedy=remedy)
        if parts[1] in found:
            raise BylotError(f"{what} is the same key as keys.{found[parts[1]].label}")
        row = ApiKey(parts[1], digest, label, entry.scopes, entry.routers, 0, None)
        found[row.id] = row
    return found


def read_secret(what: str, entry: KeyEntry, environ: Mapping[str, str]) -> str:
    """The text of a key, from its file or its environment variable."""
    if entry.file is None:
        return environ.get(entry.env or "", "").strip()
    try:
        return entry.file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text"
        raise BylotError(f"{what}: {entry.file} cannot be read: {reason}") from None


def build_config(name: str, entry: RouterEntry) -> RouterConfig:
    """The configuration of a declared router, validated, in its canonical form."""
    check_router_name(name)
    config, _ = config_from_file(problem_files.read(entry.problem), entry)
    return validate_config(config)[0]


def create_declared_routers(store: Store, url: str, entries: Mapping[str, RouterEntry]) -> None:
    """Create the routers that the store does not have, and log where others differ."""
    for name, entry in entries.items():
        config, row = build_config(name, entry), store.find(name)
        if row is None:
            log.info("creating router %s from %s", name, entry.problem)
            with closing(make_command_handler(url, LEASE_S)) as handler:
                (result,) = handler.perform([CreateRouter(name, config)], now_us())
            if isinstance(result, Exception) and not isinstance(result, RouterExists):
                raise result  # if it exists by now, another server was faster
            continue
        stored = read_stored_config(store, row)
        differences = ", ".join(list_differences(config, stored)) if stored else ""
        if differences:
            log.warning(
                "router %s differs from %s in %s: the stored one is used; change it with `bylot "
                "router edit %s`, or the file",
                *(name, entry.problem, differences, name),
            )


def list_differences(declared: RouterConfig, stored: RouterConfig) -> Iterator[str]:
    """The names of the fields that differ; a version and pauses are no part of a declaration."""
    for name in RouterConfig.__struct_fields__:
        mine, other = getattr(declared, name), getattr(stored, name)
        if name == "problem":
            yield from (f"problem.{part}" for part in mine if mine[part] != other.get(part))
        elif name not in ("version", "paused") and mine != other:
            yield name
