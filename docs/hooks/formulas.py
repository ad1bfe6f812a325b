"""Formulas: TeX becomes MathML when the site is built, which browsers draw by themselves."""

import html
import re
from xml.etree import ElementTree

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


class FormulaError(ValueError):
    """A formula that cannot be turned into MathML."""


def drawn(page: str) -> str:
    """HTML as `pymdownx.arithmatex` leaves it, with MathML in the place of TeX."""
    page = BLOCK.sub(lambda found: f'<div class="formula">{mathml(found[1], "block")}</div>', page)
    return INLINE.sub(lambda found: mathml(found[1], "inline"), page)


def mathml(escaped: str, display: str) -> str:
    """One formula, as it comes escaped in HTML.

    >>> mathml("q &lt; 1", "inline").removeprefix(
    ...     '<math xmlns="http://www.w3.org/1998/Math/MathML"'
    ... )
    ' display="inline"><mrow><mi>q</mi><mo>&#x0003C;</mo><mn>1</mn></mrow></math>'
    """
    tex = html.unescape(escaped).strip()
    made = convert(tex, display=display)
    try:  # what the converter does not know it leaves as it was, which is mostly no XML
        ElementTree.fromstring(made)
    except ElementTree.ParseError as error:
        raise FormulaError(f"{tex!r} cannot be drawn: {error}; write it in simpler TeX") from error
    unknown = re.search(r"\\[A-Za-z]+", made)
    if unknown:
        raise FormulaError(f"{tex!r}: {unknown[0]} is not known; write it in simpler TeX")
    return made
