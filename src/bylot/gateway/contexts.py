"""The context of a chat request: as the caller names it, or the cluster of its prompt; its keys.

Clusters are fitted once, on the first prompts, and never change afterwards: what a router learns
about `cluster-07` stays about the same prompts. Until then these requests have no context. Of the
prompts only their embeddings are kept, in memory, until the clusters are fitted.
"""

import logging
import threading
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from bylot._scopes import SCOPE_NAMES
from bylot.api import MAX_TEXT_CHARS
from bylot.errors import BylotError, DecisionError, TenantError
from bylot.gateway.answers import join_text
from bylot.gateway.entry_settings import read_entry_settings
from bylot.gateway.text_clusters import MAX_CLUSTERS, TextClusters, TextModel, load_text_model
from bylot.limits.keys import list_given_keys
from bylot.numerics.jit import Floats

LABEL_HEADERS = {kind: f"x-bylot-{kind}" for kind in ("context", *SCOPE_NAMES)}
LABEL_FIELDS = {kind: f"bylot_{kind}" for kind in LABEL_HEADERS}
"""Of the metadata of a request."""
PROMPTS_PER_CLUSTER = 4  # at least, to fit

log = logging.getLogger("bylot.gateway")


class ClusterSettings(Struct, frozen=True, kw_only=True):
    """`context` of a gateway; without settings, no prompt is looked at.

    clusters:  how many; None: those of the file
    fit_after: prompts on which they are fitted
    file:      where they are kept; an existing one is used as it is
    """

    clusters: (
        Annotated[int, Meta(ge=2, le=MAX_CLUSTERS, description=f"2 to {MAX_CLUSTERS}")] | None
    ) = None
    fit_after: Annotated[int, Meta(ge=8, le=20_000, description="8 to 20,000 prompts")] = 500
    file: Annotated[str, Meta(min_length=1, description="a path")] | None = None
    seed: Annotated[int, Meta(ge=0, lt=2**63, description="a whole number of at least 0")] = 0


class RequestContexts:
    """Finds the contexts of the requests of one router; only the event loop may call `find`.

    clusters: None: not fitted yet, or not wanted
    vectors:  embeddings of prompts so far; None: none are collected
    """

    def __init__(
        self,
        settings: ClusterSettings | None = None,
        path: Path | None = None,
        model: TextModel | None = None,
    ) -> None:
        self.settings, self.path, self.model = settings, path, model
        self.clusters: TextClusters | None = None
        self.vectors: list[Floats] | None = None if settings is None else []
        self.thread: threading.Thread | None = None
        if model is not None and path is not None and path.exists():
            self.clusters, self.vectors = TextClusters.load(path, model), None

    def find(self, header: str | bytes | None, body: Mapping[str, Any]) -> str | None:
        """The context of a request: of its header, else of its metadata, else its cluster."""
        given = read_header_label("context", header) or read_field_label("context", body)
        if given is not None:
            return given
        if self.clusters is None and self.vectors is None:
            return None
        prompt = find_prompt(body)
        if self.clusters is not None:
            return self.clusters.assign(prompt)
        self.collect(prompt)
        return None

    def collect(self, prompt: str) -> None:
        """Keep the embedding of a prompt; when there are enough, fit clusters in a thread."""
        assert self.settings is not None
        assert self.model is not None
        assert self.vectors is not None
        vector = self.model.embed(prompt)
        if vector.any():
            self.vectors.append(vector)
        if len(self.vectors) >= self.settings.fit_after:
            vectors, self.vectors = np.array(self.vectors), None
            self.thread = threading.Thread(
                target=self.fit, args=(vectors,), name="bylot-clusters", daemon=True
            )
            self.thread.start()

    def fit(self, vectors: Floats) -> None:
        """Fit clusters and save them; if that fails, collect again."""
        try:
            self.clusters = self.make_clusters(vectors)
        except Exception:
            log.exception("no clusters of prompts were made; %d more prompts", len(vectors))
            self.vectors = []

    def make_clusters(self, vectors: Floats) -> TextClusters:
        """Clusters of embeddings or, if another server was faster, those of the file."""
        assert self.settings is not None
        assert self.model is not None
        if self.path is not None and self.path.exists():
            return TextClusters.load(self.path, self.model)
        count = self.settings.clusters or MAX_CLUSTERS
        made = TextClusters.fit(self.model, vectors, count, self.settings.seed)
        if self.path is not None:
            made.save(self.path)
        return made


def make_contexts(
    settings: Mapping[str, Any], *, default_file: Path | None = None, what: str = "context"
) -> RequestContexts:
    """The contexts of a router whose gateway has these settings, which are checked.

    default_file: where clusters are kept if the settings name no file; None: they must
    what:         the place of the settings, for errors
    """
    if not settings:
        return RequestContexts()
    given = read_entry_settings(what, settings, ClusterSettings)
    path = Path(given.file) if given.file is not None else default_file
    if path is None:  # a server that starts again must find the same clusters
        raise BylotError(f"{what}: no file", remedy=f"give {what}.file, where clusters are kept")
    if given.clusters is None and not path.exists():
        missing = f"{what}: there are no clusters in {path}"
        raise BylotError(missing, remedy=f"give {what}.clusters, such as 16, to fit some")
    if given.clusters is not None and given.fit_after < PROMPTS_PER_CLUSTER * given.clusters:
        raise BylotError(
            f"{what}.fit_after",
            got=given.fit_after,
            expected=f"at least {PROMPTS_PER_CLUSTER} prompts per cluster",
        )
    if not path.parent.is_dir():
        raise BylotError(
            f"{what}: no folder {path.parent}",
            remedy=f"create the folder, or name another file in {what}.file",
        )
    return RequestContexts(given, path, load_text_model())


def find_cluster_file(folder: Path | None, router: str) -> Path | None:
    """Where clusters of a router are kept by default; None: nowhere, without a folder."""
    return None if folder is None else folder / f"{router}.clusters.json"


def find_keys(headers: Mapping[bytes, bytes], body: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of a request by scope, from its headers, else from its metadata."""
    found = {}
    for scope in SCOPE_NAMES:
        header = headers.get(LABEL_HEADERS[scope].encode())
        found[scope] = read_header_label(scope, header) or read_field_label(scope, body)
    return list_given_keys(found)


def read_header_label(kind: str, header: str | bytes | None) -> str | None:
    """Return the context or the key in a header; bytes are UTF-8."""
    place = LABEL_HEADERS[kind]
    if isinstance(header, bytes):
        try:
            header = header.decode()
        except UnicodeDecodeError:
            raise label_error(kind, place, header) from None
    return check_label(kind, place, header) if header else None


def read_field_label(kind: str, body: Mapping[str, Any]) -> str | None:
    """Return the context or the key in the metadata of a request."""
    metadata, field = body.get("metadata"), LABEL_FIELDS[kind]
    found = metadata.get(field) if isinstance(metadata, Mapping) else None
    return None if found in (None, "") else check_label(kind, f"metadata.{field}", found)


def check_label(kind: str, place: str, value: Any) -> str:
    """Return a context or a key in NFC, so that texts that look alike are one."""
    if not isinstance(value, str):
        raise label_error(kind, place, value)
    text = unicodedata.normalize("NFC", value)
    if not 1 <= len(text) <= MAX_TEXT_CHARS or not text.isprintable():
        raise label_error(kind, place, value)
    return text


def label_error(kind: str, place: str, value: Any) -> DecisionError:
    """The error about a value that is no label."""
    got = value[:MAX_TEXT_CHARS] if isinstance(value, str | bytes) else value
    expected = f"1 to {MAX_TEXT_CHARS} printable characters"
    error = TenantError if kind in SCOPE_NAMES else DecisionError
    return error(f"{kind} in {place}", got=got, expected=expected)


def find_prompt(body: Mapping[str, Any]) -> str:
    """The text of the last message of the user; empty if it has none.

    >>> find_prompt({"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant"}]})
    'Hello'
    """
    messages = body.get("messages")
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, Mapping) and message.get("role") == "user":
            return join_text(message.get("content"), "\n")
    return ""
