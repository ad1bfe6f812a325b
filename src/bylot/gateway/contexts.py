"""The context of a chat request: as the caller names it, or the cluster of its prompt; its keys.

Clusters are fitted once, on the first prompts, and never change afterwards: what a router learns
about `cluster-07` stays about the same prompts. Until then these requests have no context. Of the
prompts only their embeddings are kept, in memory, until the clusters are fitted.

The embedding is the mean of the token vectors that the package `wordllama` carries. Its two files
are read directly: its own loader may download, and nothing here uses the network.
"""

import hashlib
import logging
import threading
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from bylot._atomic_write import save_file
from bylot._scopes import SCOPE_NAMES
from bylot.api import MAX_TEXT_CHARS
from bylot.errors import BylotError, DataError, DecisionError, TenantError, install_command
from bylot.gateway.answers import join_text
from bylot.gateway.entry_settings import read_entry_settings
from bylot.limits.keys import list_given_keys
from bylot.numerics.jit import Floats

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEXT_MODEL = "wordllama-l2_supercat_256"
CLUSTERS_VERSION = 1
MAX_PROMPT_CHARS = 4_000  # that are embedded
MAX_CLUSTERS = 64
FILE_REMEDY = "restore the file that belongs to this router, or remove it together with the router"


class TextModel(NamedTuple):
    """A vector for each token; digest: SHA-256 of the file of vectors."""

    digest: str
    tokenizer: "Tokenizer"
    vectors: npt.NDArray[np.float32]

    def embed(self, text: str) -> Floats:
        """The mean vector of the tokens of a text, of length 1; of length 0 without a token."""
        ids = self.tokenizer.encode(clean_prompt(text), add_special_tokens=False).ids
        total = self.vectors.take(ids, axis=0).sum(axis=0, dtype=np.float64)
        length = np.linalg.norm(total)
        return total / length if length > 0 else np.zeros_like(total)


class SavedClusters(Struct, frozen=True, kw_only=True):
    """The file of clusters: no prompt is in it."""

    version: int
    model: str
    digest: str
    seed: int
    prompts: int
    centroids: list[list[float]]


class TextClusters(NamedTuple):
    """Clusters that do not change any more; the most common one is the first.

    centroids: (clusters, dimensions), of length 1
    prompts:   how many they were fitted on
    """

    model: TextModel
    centroids: Floats
    seed: int
    prompts: int

    @classmethod
    def fit(cls, model: TextModel, vectors: Floats, clusters: int, seed: int = 0) -> "TextClusters":
        """Fit clusters to the embeddings of texts."""
        return cls(model, fit_spherical(vectors, clusters, seed), seed, len(vectors))

    def assign(self, text: str) -> str | None:
        """The name of the nearest cluster, such as `cluster-07`; None for an empty text."""
        vector = self.model.embed(text)
        if not vector.any():
            return None
        return f"cluster-{int(np.argmax(self.centroids @ vector)):02d}"

    def save(self, path: Path) -> None:
        """Write the file of clusters."""
        saved = SavedClusters(
            version=CLUSTERS_VERSION,
            model=TEXT_MODEL,
            digest=self.model.digest,
            seed=self.seed,
            prompts=self.prompts,
            centroids=self.centroids.tolist(),
        )
        save_file(path, msgspec.json.format(msgspec.json.encode(saved), indent=1) + b"\n")

    @classmethod
    def load(cls, path: Path, model: TextModel | None = None) -> "TextClusters":
        """Read a file of clusters; one of another model or version is refused."""
        model = model or load_text_model()
        try:
            saved = msgspec.json.decode(path.read_bytes(), type=SavedClusters)
        except OSError as error:
            raise DataError(f"it cannot be read: {error.strerror}", path=path) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(
                f"it is not a file of clusters: {error}", path=path, remedy=FILE_REMEDY
            ) from error
        found = saved.version, saved.model, saved.digest
        wanted = CLUSTERS_VERSION, TEXT_MODEL, model.digest
        for name, one, other in zip(("version", "model", "digest"), found, wanted, strict=True):
            if one != other:
                raise DataError(name, got=one, expected=repr(other), path=path, remedy=FILE_REMEDY)
        centroids = check_centroids(path, saved.centroids, model.vectors.shape[1])
        return cls(model, centroids, saved.seed, saved.prompts)


def check_centroids(path: Path, rows: list[list[float]], size: int) -> Floats:
    """Centroids of a file: up to 64 vectors of length 1."""
    if 1 <= len(rows) <= MAX_CLUSTERS and all(len(row) == size for row in rows):
        centroids = np.array(rows, np.float64)
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(centroids, axis=1)
        if (np.abs(lengths - 1) < 1e-6).all():
            return centroids
    raise DataError(
        "centroids: damaged",
        expected=f"1 to {MAX_CLUSTERS} vectors of {size} numbers, each of length 1",
        path=path,
        remedy=FILE_REMEDY,
    )


def clean_prompt(text: str) -> str:
    """The part of a prompt that is embedded.

    >>> clean_prompt("  one  line ")
    'one line'
    """
    clean = " ".join(text[:MAX_PROMPT_CHARS].split())
    return clean.encode(errors="replace").decode()  # without single surrogates


@cache
def load_text_model() -> TextModel:
    """The vectors and the tokenizer in the folder of `wordllama`, which is not imported."""
    found = find_spec("wordllama")
    try:
        if found is None or found.origin is None:
            raise ModuleNotFoundError(name="wordllama")
        from safetensors.numpy import load
        from tokenizers import Tokenizer
    except ImportError as error:
        raise BylotError(
            f"clusters of prompts need {error.name}", remedy=install_command("text")
        ) from None
    folder = Path(found.origin).parent
    try:
        content = (folder / "weights/l2_supercat_256.safetensors").read_bytes()
        vectors = load(content)["embedding.weight"].astype(np.float32)
        tokenizer = Tokenizer.from_str(
            (folder / "tokenizers/l2_supercat_tokenizer_config.json").read_text(encoding="utf-8")
        )
    except Exception as error:  # of safetensors or tokenizers: they have no common base
        raise BylotError(
            f"the files of wordllama cannot be read: {error}", remedy=install_command("text")
        ) from error
    return TextModel(hashlib.sha256(content).hexdigest(), tokenizer, vectors)


def fit_spherical(vectors: Floats, clusters: int, seed: int) -> Floats:
    """Return centroids of length 1, the directions of the clusters that k-means finds.

    Vectors have length 1, so that distances order them as cosines do. Of several starts the best
    one counts. There are fewer centroids if vectors coincide; vectors of length 0 are ignored.
    Centroids are in the order of the number of their vectors.
    """
    from scipy.cluster.vq import kmeans  # only a fit needs it

    vectors = vectors[vectors.any(axis=1)]
    if not len(vectors):
        raise BylotError("no prompt has a text", remedy="fit the clusters on other prompts")
    most = min(clusters, len(np.unique(vectors, axis=0)))
    means, _ = kmeans(vectors, most, iter=20, thresh=0.0, rng=seed)
    centroids: Floats = means / np.linalg.norm(means, axis=1, keepdims=True)
    sizes = np.bincount((vectors @ centroids.T).argmax(axis=1), minlength=len(centroids))
    return centroids[np.argsort(-sizes, kind="stable")]


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
    found = {
        scope: read_header_label(scope, headers.get(LABEL_HEADERS[scope].encode()))
        or read_field_label(scope, body)
        for scope in SCOPE_NAMES
    }
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
