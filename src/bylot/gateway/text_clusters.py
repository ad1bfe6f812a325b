"""Clusters of prompts by what they are about: static embeddings, k-means, a frozen file.

The embedding is the mean of the token vectors that the package `wordllama` carries. Its two files
are read directly: its own loader may download, and nothing here uses the network.
"""

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from bylot._atomic_write import save_file
from bylot.errors import BylotError, DataError, install_command
from bylot.numerics.jit import Floats

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEXT_MODEL = "wordllama-l2_supercat_256"
WEIGHTS_FILE = "weights/l2_supercat_256.safetensors"
TOKENIZER_FILE = "tokenizers/l2_supercat_tokenizer_config.json"
CLUSTERS_VERSION = 1
MAX_PROMPT_CHARS = 4_000  # that are embedded
MAX_CLUSTERS = 64
RESTARTS = 20
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
        content = (folder / WEIGHTS_FILE).read_bytes()
        vectors = load(content)["embedding.weight"].astype(np.float32)
        tokenizer = Tokenizer.from_str((folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
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
    means, _ = kmeans(vectors, most, iter=RESTARTS, thresh=0.0, rng=seed)
    centroids: Floats = means / np.linalg.norm(means, axis=1, keepdims=True)
    sizes = np.bincount((vectors @ centroids.T).argmax(axis=1), minlength=len(centroids))
    return centroids[np.argsort(-sizes, kind="stable")]
