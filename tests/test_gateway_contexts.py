"""Contexts of chat requests: headers, metadata, and clusters of prompts."""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bylot.errors import BylotError, DataError, DecisionError
from bylot.gateway import contexts
from bylot.gateway.contexts import (
    RequestContexts,
    TextClusters,
    TextModel,
    find_prompt,
    fit_spherical,
    load_text_model,
    make_contexts,
)
from bylot.numerics.jit import Floats, Ints
from recorded_answers import find_recorded_file

CLUSTERED = {"clusters": 4, "fit_after": 24}
TOPICS = {
    "cooking": "bake the bread in the oven with butter and flour for recipe number",
    "law": "the court shall decide on the contract and the liability of the defendant in case",
    "space": "the orbit of the planet around the star seen by telescope number",
    "code": "def function(x): return x + 1  # raises TypeError in python version",
}
PROMPTS = [f"{text} {n}" for n in range(6) for text in TOPICS.values()]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return load_text_model()


def ask(text: Any, **fields: Any) -> dict[str, Any]:
    """The body of a request."""
    return {"model": "panel", "messages": [{"role": "user", "content": text}], **fields}


def fit_clusters(
    model: TextModel, texts: Sequence[str], clusters: int, seed: int = 0
) -> TextClusters:
    """Clusters of texts."""
    vectors = np.array([model.embed(text) for text in texts])
    return TextClusters.fit(model, vectors, clusters, seed)


def fit_contexts(contexts: RequestContexts, prompts: Sequence[str] = PROMPTS) -> None:
    """Send prompts until the clusters are fitted."""
    for prompt in prompts:
        assert contexts.find(None, ask(prompt)) is None
    assert contexts.thread is not None
    contexts.thread.join()


# named contexts


def test_the_header_counts_before_the_metadata() -> None:
    contexts = make_contexts({})
    body = ask("Hello", metadata={"bylot_context": "law"})
    assert contexts.find("med", body) == "med"
    assert contexts.find("café".encode(), body) == "café"
    assert contexts.find(None, body) == "law"
    assert contexts.find("", body) == "law"
    assert contexts.find(None, ask("Hello", metadata={"bylot_context": ""})) is None
    assert contexts.find(None, ask("Hello", metadata=None)) is None
    assert contexts.find(None, ask("Hello")) is None


def test_contexts_that_look_alike_are_one() -> None:
    assert make_contexts({}).find("cafe\u0301", {}) == "caf\u00e9"


@pytest.mark.parametrize("wrong", ["a\nb", "x" * 201, "\x00", "\u200b", b"\xff"], ids=repr)
def test_a_header_that_is_no_context_is_refused(wrong: str | bytes) -> None:
    with pytest.raises(DecisionError, match=r"x-bylot-context.*1 to 200 printable characters"):
        make_contexts({}).find(wrong, {})


@pytest.mark.parametrize("wrong", ["a\nb", "x" * 201, 3, ["law"], True])
def test_a_field_that_is_no_context_is_refused(wrong: Any) -> None:
    with pytest.raises(
        DecisionError, match=r"metadata\.bylot_context.*1 to 200 printable"
    ) as found:
        make_contexts({}).find(None, ask("Hello", metadata={"bylot_context": wrong}))
    assert len(str(found.value)) < 400


# prompts


@pytest.mark.parametrize(
    ("messages", "prompt"),
    [
        ([{"role": "user", "content": "one"}, {"role": "user", "content": "two"}], "two"),
        ([{"role": "user", "content": "one"}, {"role": "tool", "content": "two"}], "one"),
        ([{"role": "system", "content": "one"}], ""),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}],
            "a",
        ),
        ([{"role": "user", "content": [3, {"text": 4}, "x"]}], ""),
        ([{"role": "user", "content": None}], ""),
        (["nonsense"], ""),
        ("nonsense", ""),
        (None, ""),
    ],
)
def test_the_prompt_is_the_last_message_of_the_user(messages: Any, prompt: str) -> None:
    assert find_prompt({"messages": messages}) == prompt


# clusters of requests


def test_clusters_are_fitted_after_some_prompts_and_then_frozen(
    model: TextModel, tmp_path: Path
) -> None:
    path = tmp_path / "clusters.json"
    contexts = make_contexts({**CLUSTERED, "file": str(path)})
    fit_contexts(contexts)
    names = {topic: contexts.find(None, ask(f"{text} 77")) for topic, text in TOPICS.items()}
    assert sorted(map(str, names.values())) == [f"cluster-{n:02d}" for n in range(4)]
    written = path.read_bytes()
    for _ in range(30):
        contexts.find(None, ask(TOPICS["law"]))
    assert path.read_bytes() == written
    again = make_contexts({**CLUSTERED, "file": str(path)})  # a server that starts again
    assert {topic: again.find(None, ask(f"{text} 77")) for topic, text in TOPICS.items()} == names
    only_file = make_contexts({"file": str(path)})
    assert only_file.find(None, ask(TOPICS["law"])) == names["law"]


def test_a_named_context_counts_before_the_cluster_and_is_not_collected(
    model: TextModel, tmp_path: Path
) -> None:
    contexts = make_contexts(CLUSTERED, default_file=tmp_path / "clusters.json")
    for prompt in PROMPTS:
        assert contexts.find("law", ask(prompt)) == "law"
    assert contexts.thread is None
    fit_contexts(contexts)
    assert contexts.find("law", ask(PROMPTS[0])) == "law"


def test_prompts_without_text_have_no_cluster_and_are_not_counted(
    model: TextModel, tmp_path: Path
) -> None:
    contexts = make_contexts(CLUSTERED, default_file=tmp_path / "clusters.json")
    for _ in range(30):
        assert contexts.find(None, ask([{"type": "image_url"}])) is None
    assert contexts.thread is None
    fit_contexts(contexts)
    assert contexts.find(None, ask(" \n")) is None


def test_no_prompt_is_kept_anywhere(model: TextModel, tmp_path: Path) -> None:
    path = tmp_path / "clusters.json"
    contexts = make_contexts({**CLUSTERED, "file": str(path)})
    for prompt in PROMPTS[:-1]:
        contexts.find(None, ask(prompt))
    assert contexts.vectors is not None
    assert {type(one) for one in contexts.vectors} == {np.ndarray}
    contexts.find(None, ask(PROMPTS[-1]))
    assert contexts.thread is not None
    contexts.thread.join()
    assert contexts.vectors is None
    saved = json.loads(path.read_text())
    assert {*saved} == {"version", "model", "digest", "seed", "prompts", "centroids"}
    assert not any(word in path.read_text() for word in ("bread", "court", "planet", "python"))


def test_clusters_that_cannot_be_saved_are_not_used(
    model: TextModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    contexts = make_contexts({**CLUSTERED, "file": str(folder / "clusters.json")})
    folder.rmdir()
    fit_contexts(contexts)
    assert contexts.clusters is None
    assert "no clusters of prompts were made" in caplog.text
    folder.mkdir()
    fit_contexts(contexts)  # it tries again with as many more
    assert contexts.find(None, ask(PROMPTS[0])) is not None


def test_clusters_of_another_server_that_was_faster_are_used(
    model: TextModel, tmp_path: Path
) -> None:
    path = tmp_path / "clusters.json"
    contexts = make_contexts(CLUSTERED, default_file=path)
    fit_clusters(model, PROMPTS, 2, seed=5).save(path)
    written = path.read_bytes()
    fit_contexts(contexts)
    assert contexts.clusters is not None
    assert len(contexts.clusters.centroids) == 2
    assert path.read_bytes() == written


# settings


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"cluster": 16}, r"gateway\.context: unknown setting 'cluster'; did you mean 'clusters'"),
        ({"clusters": 1}, r"gateway\.context\.clusters 1: expected 2 to 64"),
        ({"clusters": 65}, "expected 2 to 64"),
        ({"clusters": "many"}, "expected 2 to 64"),
        (
            {"clusters": 16, "fit_after": 60, "file": "c.json"},
            "60: expected at least 4 prompts per cluster",
        ),
        ({"clusters": 16, "fit_after": 10**6}, "8 to 20,000 prompts"),
        ({"clusters": 16, "file": None}, r"no file; give gateway\.context\.file"),
        ({"file": "no-such-file.json"}, "there are no clusters in no-such-file.json; give"),
        ({"clusters": 16, "file": "/no/such/folder/c.json"}, "no folder /no/such/folder; create"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(BylotError, match=fault):
        make_contexts(settings, what="gateway.context")


@pytest.fixture
def fresh_model() -> Iterator[None]:
    """The model is loaded again, in this test and after it."""
    load_text_model.cache_clear()
    yield
    load_text_model.cache_clear()


@pytest.mark.usefixtures("fresh_model")
@pytest.mark.parametrize("missing", ["wordllama", "tokenizers", "safetensors"])
def test_a_missing_extra_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "wordllama":
        monkeypatch.setattr(contexts, "find_spec", lambda name: None)
    else:
        monkeypatch.setitem(sys.modules, missing, None)
        monkeypatch.setitem(sys.modules, f"{missing}.numpy", None)
    with pytest.raises(BylotError, match=rf"need {missing}.*pip install '\.\[text\]'"):
        make_contexts({**CLUSTERED, "file": "clusters.json"})
    assert make_contexts({}).find("law", {}) == "law"  # it is not needed for these


OFFLINE = """
import sys

def refuse(event, arguments):
    if event.startswith("socket."):
        raise OSError(f"{event}: no network")

sys.addaudithook(refuse)
from bylot.gateway.contexts import TextClusters, load_text_model, np
model = load_text_model()
prompts = [f"{word} {n}" for n in range(4) for word in ("bread oven", "court law")]
vectors = np.array([model.embed(prompt) for prompt in prompts])
print(TextClusters.fit(model, vectors, 2).assign("butter"), *sys.modules)
"""


@pytest.mark.usefixtures("model")
def test_clusters_need_no_network_and_load_little() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=True
    )
    name, *modules = done.stdout.split()
    assert name in ("cluster-00", "cluster-01")
    assert not {"wordllama", "huggingface_hub", "requests", "httpx", "torch"} & {*modules}


# embeddings


def test_an_embedding_is_the_normalised_mean_of_token_vectors(model: TextModel) -> None:
    ids = model.tokenizer.encode("court law", add_special_tokens=False).ids
    mean = model.vectors[ids].astype(float).mean(axis=0)
    assert model.embed(" court \n law ") == pytest.approx(mean / np.linalg.norm(mean))
    assert not model.embed(" \n\t").any()
    assert_array_equal(model.embed("law " * 1_000), model.embed("law " * 90_000))


@pytest.mark.parametrize("text", ["\ud800", "\x00", "中文", "€" * 9_000, "a" * 9_000, "</s><unk>"])
def test_any_text_has_an_embedding(model: TextModel, text: str) -> None:
    assert np.linalg.norm(model.embed(text)) == pytest.approx(1)


# k-means


def make_bundles(sizes: Sequence[int], noise: float = 0.05) -> tuple[Floats, Ints]:
    """Unit vectors around orthogonal directions, and which direction each has."""
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    vectors = np.eye(len(sizes), 12)[labels] + noise * rng.normal(size=(labels.size, 12))
    mixed = rng.permutation(labels.size)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True))[mixed], labels[mixed]


def test_k_means_finds_planted_clusters_in_the_order_of_their_sizes() -> None:
    vectors, labels = make_bundles([5, 40, 10, 20])
    for seed in range(10):
        centroids = fit_spherical(vectors, 4, seed)
        assert_array_equal((vectors @ centroids.T).argmax(axis=1), np.array([3, 0, 2, 1])[labels])
        assert np.linalg.norm(centroids, axis=1) == pytest.approx(1)


def test_k_means_is_deterministic_and_depends_on_its_seed() -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 12))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert_array_equal(fit_spherical(vectors, 8, 3), fit_spherical(vectors, 8, 3))
    assert (fit_spherical(vectors, 8, 3) != fit_spherical(vectors, 8, 4)).any()


def test_k_means_ends_where_steps_hardly_improve() -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 12))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    centroids = fit_spherical(vectors, 8, 0)
    nearest = (vectors @ centroids.T).argmax(axis=1)
    means = np.array([vectors[nearest == j].sum(axis=0) for j in range(8)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    assert (vectors @ means.T).max(axis=1).sum() < 1.01 * (vectors @ centroids.T).max(axis=1).sum()
    drawn = vectors[np.random.default_rng(1).integers(300, size=(50, 8))]
    values = [(vectors @ some.T).max(axis=1).sum() for some in drawn]
    assert (vectors @ centroids.T).max(axis=1).sum() > max(values)


def test_vectors_that_coincide_make_fewer_clusters() -> None:
    vectors = np.eye(3, 12)[[0, 1, 1, 2, 2, 2]]
    assert_array_equal(fit_spherical(vectors, 8, 0), np.eye(3, 12)[[2, 1, 0]])
    zeros = np.vstack([vectors, np.zeros((5, 12))])
    assert_array_equal(fit_spherical(zeros, 8, 0), np.eye(3, 12)[[2, 1, 0]])
    with pytest.raises(BylotError, match="no prompt has a text"):
        fit_spherical(np.zeros((5, 12)), 2, 0)


# the file


@pytest.fixture
def saved(model: TextModel, tmp_path: Path) -> Path:
    path = tmp_path / "clusters.json"
    fit_clusters(model, PROMPTS, 4).save(path)
    return path


def test_a_file_keeps_every_bit(model: TextModel, saved: Path) -> None:
    made, loaded = fit_clusters(model, PROMPTS, 4), TextClusters.load(saved)
    assert_array_equal(made.centroids, loaded.centroids)
    assert (loaded.seed, loaded.prompts) == (0, len(PROMPTS))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"version": 2}, "invalid version 2: expected 1"),
        ({"model": "other"}, "invalid model 'other': expected 'wordllama"),
        ({"digest": "0" * 64}, "invalid digest"),
        ({"centroids": []}, "1 to 64 vectors of 256 numbers"),
        ({"centroids": [[1.0]]}, "1 to 64 vectors of 256 numbers"),
        ({"centroids": [[2.0] * 256]}, "each of length 1"),
        ({"centroids": [[1e300] * 256]}, "each of length 1"),
        ({"centroids": 3}, "not a file of clusters"),
        ({"seed": None}, "not a file of clusters"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_another_file_is_refused(saved: Path, change: dict[str, Any], fault: str) -> None:
    saved.write_text(json.dumps({**json.loads(saved.read_text()), **change}))
    with pytest.raises(DataError, match=fault) as found:
        make_contexts({**CLUSTERED, "file": str(saved)})
    assert str(saved) in str(found.value)
    assert "restore the file that belongs to this router" in str(found.value)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{"])
def test_a_damaged_file_is_refused(saved: Path, content: bytes) -> None:
    saved.write_bytes(content)
    with pytest.raises(DataError, match="not a file of clusters"):
        TextClusters.load(saved)
    saved.unlink()
    with pytest.raises(DataError, match="No such file"):
        TextClusters.load(saved)


# what clusters are worth


def compute_nmi(first: Ints, second: Ints) -> float:
    """Normalised mutual information: 2 I(A; B) / (H(A) + H(B))."""
    joint = np.zeros((first.max() + 1, second.max() + 1))
    np.add.at(joint, (first, second), 1 / first.size)

    def entropy(p: Floats) -> float:
        p = p[p > 0]
        return float(-(p * np.log(p)).sum())

    alone = entropy(joint.sum(axis=0)), entropy(joint.sum(axis=1))
    return 2 * (sum(alone) - entropy(joint.ravel())) / sum(alone)


def test_the_information_of_clusters_is_computed_correctly() -> None:
    labels = np.array([0, 0, 1, 1])
    assert compute_nmi(labels, 1 - labels) == pytest.approx(1)
    assert compute_nmi(labels, np.array([0, 1, 0, 1])) == pytest.approx(0)


def test_clusters_agree_with_the_subjects_of_questions(model: TextModel) -> None:
    with gzip.open(find_recorded_file(), "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    texts = ["\n".join([row["question"], *row["options"]]) for row in rows]
    subjects = np.unique([row["category"] for row in rows], return_inverse=True)[1]
    rng = np.random.default_rng(0)
    order = rng.permutation(len(rows))
    seen, unseen = order[:400], order[400:]
    clusters = fit_clusters(model, [texts[i] for i in seen], 16)
    names = [clusters.assign(texts[i]) for i in unseen]
    labels = np.array([int(str(name).removeprefix("cluster-")) for name in names])
    found = compute_nmi(labels, subjects[unseen])
    chance = [compute_nmi(labels, rng.permutation(subjects[unseen])) for _ in range(200)]
    assert found > np.mean(chance) + 10 * np.std(chance)
    assert found > 0.4
