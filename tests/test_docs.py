"""The site of the documents: its pages run, it builds without a warning, and it fetches nothing."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from enum import EnumType
from html.parser import HTMLParser
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bylot
from bylot.cli import make_parser
from documents import find_blocks, find_commands, run_page
from formulas import FormulaError, mathml
from names import PYTHON, SECTION, python_page, settings_page
from paper_records import AS_WRITTEN, make_paper_records
from server_process import serve_store
from verbs import page as verbs_page
from verbs import verbs

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
ELSEWHERE = r"\{ \.python \.elsewhere \}"  # another library's code, which is not run

PROTOCOLS = ("Environment", "Rounds", "Policy", "PlainPolicy")

OFFLINE = """
import runpy, sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        raise OSError(f"{event} {arguments}: the site is built without a network")

sys.addaudithook(refuse)
runpy.run_module("mkdocs", run_name="__main__", alter_sys=True)
"""


def read_page(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if find_blocks(read_page(page), "python")])
def test_the_code_of_a_page_runs_and_prints_what_it_shows(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if page == "records.md":  # reads what `bylot reproduce` has written
        (tmp_path / "out" / "paper").mkdir(parents=True)
        make_paper_records(AS_WRITTEN, seeds=2).cells.write_parquet("out/paper/records.parquet")
    if page == "problem-files.md":  # reads the file that it shows
        Path("pool.yaml").write_text(find_blocks(read_page(page), "yaml")[0], encoding="utf-8")
    if page == "service.md":  # needs a running server
        with serve_store("sqlite:///bylot.db") as server:
            run_page(read_page(page).replace("http://127.0.0.1:8000", server.url), page, capsys)
        return
    run_page(read_page(page), page, capsys)


def test_the_regret_curves_of_the_research_page_stay_above_0() -> None:
    """Up to the noise of rewards; against the optimum of other panels, one of them falls far."""
    names: dict[str, Any] = {}
    for code in find_blocks(read_page("research.md"), "python")[:2]:
        exec(compile(code, "research.md", "exec"), names)
    rewards = names["trace"].rewards  # of distinct
    noise = 5 * rewards.std() * np.sqrt(np.arange(1, len(rewards) + 1))
    for curve in names["curves"].values():
        assert (curve > -noise).all()
    paper = bylot.iid_optimum(names["problem"], names["values"], floor=True)
    wrong = np.cumsum(paper.value - rewards)
    assert round(wrong[-1]) == -421
    assert (wrong < -noise).any()


def test_a_page_whose_output_differs_from_its_code_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = "```python\nprint(1)\n```\n\n```text\n2\n```\n"
    with pytest.raises(AssertionError):
        run_page(page, "page", capsys)


@pytest.mark.parametrize("page", PAGES)
def test_all_python_of_a_page_is_run_or_marked_as_code_of_another_library(page: str) -> None:
    python_fences = re.findall(r"^```.*py.*$", read_page(page), re.MULTILINE)
    elsewhere = find_blocks(read_page(page), ELSEWHERE)
    run = find_blocks(read_page(page), "python")
    if page == "gateway.md":  # tests/test_gateway_quickstart.py runs these with a server
        run += find_blocks(read_page(page), r"\{ \.python \.openai \}")
    assert len(python_fences) == len(run) + len(elsewhere)
    for code in elsewhere:
        compile(code, page, "exec")
        assert "bylot" not in code


@pytest.mark.parametrize("page", PAGES)
def test_no_python_of_a_page_is_hidden_from_the_tests_by_indentation(page: str) -> None:
    assert find_indented_python(read_page(page)) == []


def test_indented_python_is_found() -> None:
    page = "Text:\n\n    router = bylot.Router(problem)\n    router.decide()\n\n"
    fenced = "```python\nif True:\n    bylot.Router(problem)\n```\n"
    assert find_indented_python(page + fenced) == ["    router = bylot.Router(problem)"]


def find_indented_python(page: str) -> list[str]:
    """Lines of indented code blocks that call bylot; no test would run them."""
    unfenced = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^ {4}.*\bbylot\.\w+\(.*$", unfenced, re.MULTILINE)


def test_every_command_of_the_pages_exists() -> None:
    found = [words for page in PAGES for words in find_commands(read_page(page))]
    for given in found:
        words = list(dropwhile(re.compile("[A-Z_]+=").match, given))  # settings of the environment
        assert words[0] in ("bylot", "pip")
        if words[0] == "bylot":
            make_parser().parse_args(words[1:])
    assert len(found) >= 2


def test_the_page_on_choosing_a_policy_stays_short() -> None:
    assert len(read_page("policies.md").splitlines()) <= 150


def test_every_public_name_is_in_the_reference() -> None:
    pages = python_page() + settings_page()
    for name in bylot.__all__:
        if callable(getattr(bylot, name)):
            assert f"### `{name}`" in pages
    for module in (bylot.environments, bylot.policies):
        for name in module.__all__:
            if isinstance(getattr(module, name), type) and name not in PROTOCOLS:
                assert f"### `{name}`" in pages


def parse_sections(docstring: str | None) -> dict[str, str]:
    """The numpydoc sections of a docstring."""
    _, *parts = SECTION.split(inspect.cleandoc(docstring or ""))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def list_undocumented(label: str, one: Any) -> list[str]:
    """Parameters and sections that the docstring of a public name does not have."""
    sections = parse_sections(one.__doc__)
    listed = sections.get("Parameters", "") + "\n" + sections.get("Attributes", "")
    heads = re.findall(r"^\*{0,2}(\w+(?:, \w+)*)(?: :.*)?$", listed, re.MULTILINE)
    known = {name.strip() for head in heads for name in head.split(",")}
    signature = inspect.signature(one)
    names = [name for name, one in signature.parameters.items() if one.kind != one.VAR_KEYWORD]
    missing = [f"{label}: {name}" for name in names if name not in {"self", "cls", *known}]
    returns = not isinstance(one, type) and signature.return_annotation not in (None, "None")
    return missing + ([f"{label}: Returns"] if returns and "Returns" not in sections else [])


def test_public_docstrings_name_every_parameter_and_what_is_returned() -> None:
    missing_parts = []
    for one, members in (pair for group in PYTHON.values() for pair in group.items()):
        is_public = getattr(bylot, one.__name__, None) is one
        if not is_public or isinstance(one, EnumType):
            continue
        missing_parts += list_undocumented(one.__name__, one)
        for name in members:
            found = inspect.getattr_static(one, name)
            if inspect.isfunction(method := getattr(found, "__func__", found)):
                missing_parts += list_undocumented(f"{one.__name__}.{name}", method)
    assert missing_parts == []


def test_every_verb_and_option_is_in_the_reference() -> None:
    page = verbs_page()
    for verb in verbs(make_parser()):
        section = page.split(f"## {verb.prog}\n")[1].split("\n## ")[0]
        for action in verb._actions[1:]:  # all but --help
            for option in action.option_strings:
                assert f"`{option}" in section


def test_a_formula_that_cannot_be_converted_is_refused() -> None:
    assert "<mi>q</mi>" in mathml("q &lt; 1", "inline")
    for tex in (r"\begin{aligned} a &amp;= b \end{aligned}", r"\nosuchsign"):
        with pytest.raises(FormulaError):
            mathml(tex, "block")


def build_site(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a folder as `make docs` does, with no network."""
    words = [sys.executable, "-c", OFFLINE, "build", "--strict", "--site-dir", str(out)]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(words, cwd=root, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    out = tmp_path_factory.mktemp("site")
    result = build_site(ROOT, out)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    return out


class LoadedResources(HTMLParser):
    """Resources that a browser loads to show a page; links to click do not count."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            loaded = name in ("src", "srcset", "poster", "data") or (tag, name) == ("link", "href")
            if loaded and value and not value.startswith("data:"):
                self.found.append(value)


def test_pages_load_no_external_resources(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        loads = LoadedResources(page.read_text(encoding="utf-8")).found
        assert loads
        for one in loads:
            assert "//" not in one, f"{page.name} loads {one}"
            if page.name != "404.html":  # served at any path, so its links are absolute
                assert (page.parent / one.split("#")[0].split("?")[0]).exists(), one
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text())


def test_the_test_above_would_notice_an_external_resource() -> None:
    assert LoadedResources('<script src="https://cdn.example/x.js"></script>').found
    assert not LoadedResources('<a href="https://example.org">read on</a>').found


def test_formulas_are_mathml_without_scripts(site: Path) -> None:
    page = (site / "concepts" / "learning.html").read_text(encoding="utf-8")
    assert page.count("<math") > 20
    assert "arithmatex" not in page


def test_a_broken_link_stops_the_build(tmp_path: Path) -> None:
    for folder in ("docs", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    page = tmp_path / "docs" / "fit.md"
    page.write_text(page.read_text() + "\n[nowhere](concepts/limits.md#nowhere)\n")
    result = build_site(tmp_path, tmp_path / "out")
    assert result.returncode != 0
    assert "nowhere" in result.stderr
