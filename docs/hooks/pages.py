"""Where the site's builder calls us: pages that are made or lie elsewhere, formulas in all."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import applications
import calls
import formulas
import names
import verbs

MADE = {
    **applications.PAGES,
    "reference/cli.md": verbs.page,
    "reference/http.md": calls.page,
    "reference/python.md": names.python_page,
    "reference/settings.md": names.settings_page,
}
"""Pages that are in no folder of documents."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    for path, page in MADE.items():
        files.append(File.generated(config, path, content=page()))
    return files


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw the formulas of a page."""
    try:
        return formulas.drawn(content)
    except formulas.FormulaError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error
