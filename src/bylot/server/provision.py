"""What a configuration declares, made real when a server starts: its API keys and its routers."""

import logging
import os
import re
from collections.abc import Iterator, Mapping

from msgspec import structs

from bylot import problem_files
from bylot._text import format_table
from bylot.errors import BylotError, RouterExists
from bylot.eventlog.commands import CreateRouter
from bylot.eventlog.config_validation import validate_config
from bylot.eventlog.repository import read_stored_config
from bylot.eventlog.stored_router import StoredRouter
from bylot.policies.registry import fill_auto_contexts, find_policy
from bylot.router.config import RouterConfig
from bylot.server.auth import digest_secret
from bylot.server.settings import TABLES, KeyEntry, LoadedSettings, RouterEntry
from bylot.store import ApiKey, Store, hide_password

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


def build_config(entry: RouterEntry) -> RouterConfig:
    """The configuration of a declared router, validated, in its canonical form."""
    file = problem_files.read(entry.problem)
    contexts = entry.max_contexts or len(file.contexts) or None
    settings = structs.asdict(entry) | {"rewards": entry.rewards or file.rewards}
    policy = fill_auto_contexts(find_policy(settings.pop("policy")), contexts)
    if entry.max_contexts is None:
        del settings["max_contexts"]
    del settings["problem"]
    return validate_config(RouterConfig.make(file.problem, policy, **settings))[0]


def create_declared_routers(store: Store, url: str, entries: Mapping[str, RouterEntry]) -> None:
    """Create the routers that the store does not have, and log where others differ."""
    for name, entry in entries.items():
        config, row = build_config(entry), store.find(name)
        if row is None:
            log.info("creating router %s from %s", name, entry.problem)
            router = StoredRouter(url, name)
            try:
                router.send(CreateRouter(name, config))
            except RouterExists:  # another server was faster
                pass
            finally:
                router.close()
            continue
        differences = ", ".join(list_differences(config, read_stored_config(store, row)))
        if differences:
            log.warning(
                "router %s differs from %s in %s: the stored one is used; change it with `bylot "
                "router edit %s`, or the file",
                *(name, entry.problem, differences, name),
            )


def list_differences(declared: RouterConfig, stored: RouterConfig | None) -> Iterator[str]:
    """The names of the fields that differ; a version and pauses are no part of a declaration."""
    for name in RouterConfig.__struct_fields__:
        mine, other = getattr(declared, name), getattr(stored, name)
        if name == "problem":
            yield from (f"problem.{part}" for part in mine if mine[part] != other.get(part))
        elif name not in ("version", "paused") and mine != other:
            yield name


def describe_settings(loaded: LoadedSettings) -> str:
    """Each setting, its value without secrets, and its source; keys and problem files are read."""
    build_keys(loaded.settings.keys)
    rows = [("setting", "value", "from")]
    for name, value in structs.asdict(loaded.settings).items():
        source = loaded.origins.get(name, "default")
        if name not in TABLES:
            shown = hide_password(value) if name == "store" else value
            rows.append((name, "-" if value is None else str(shown), source))
            continue
        for label, entry in value.items():
            if isinstance(entry, RouterEntry):
                build_config(entry)
            for field in structs.fields(entry):
                inner = getattr(entry, field.name)
                if inner != field.default:
                    text = inner.partition(":")[0] if field.name == "digest" else inner
                    text = " ".join(map(str, text)) if isinstance(text, tuple) else text
                    rows.append((f"{name}.{label}.{field.name}", str(text), source))
    return "\n".join(format_table(rows))
