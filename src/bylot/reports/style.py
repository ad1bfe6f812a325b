"""How figures style: colours for colour-blind readers, lines that differ in a grey print."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bylot._atomic_write import save_file
from bylot.errors import BylotError, install_command
from bylot.harness import SeedCurves

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"  # Okabe and Ito's, and grey
PURPLE, SKY, AMBER, BLACK = "#CC79A7", "#56B4E9", "#E69F00", "#000000"


class SeriesStyle(NamedTuple):
    """How one series is drawn; line and marker differ as well as the colour."""

    name: str
    colour: str
    line: Any
    marker: str


PAPER_POLICY_STYLES = {
    "omd": SeriesStyle("OMD (the paper's)", BLUE, "-", "o"),
    "ts-bwk": SeriesStyle("TS-BwK", SKY, (0, (5, 1.5)), "s"),
    "cbwk": SeriesStyle("CBwK", PURPLE, (0, (4, 1.5, 1, 1.5)), "D"),
    "moe": SeriesStyle("MoE", BLACK, (0, (1, 1)), "P"),
    "ts": SeriesStyle("TS", GREEN, (0, (7, 2)), "^"),
    "cucb": SeriesStyle("CUCB", ORANGE, (0, (3, 1, 1, 1, 1, 1)), "v"),
    "greedy": SeriesStyle("Greedy", AMBER, (0, (2, 1)), "<"),
    "random": SeriesStyle("Random", "#8A8A8A", (0, (1, 2)), "X"),
}
"""The paper's eight policies in the order of legends: limit-aware ones first."""

BEYOND_POLICY_STYLES = {
    **{name: PAPER_POLICY_STYLES[name] for name in ("omd", "ts-bwk", "cbwk")},
    "strict": SeriesStyle("strict", AMBER, (0, (2, 1)), "<"),
    "tangent": SeriesStyle("tangent", GREEN, (0, (7, 2)), "^"),
    "distinct": SeriesStyle("distinct", ORANGE, (0, (12, 1.5)), "v"),
}
"""Beyond the paper: its best beside ours."""


def make_figure_folder(path: Path) -> Path:
    """Create the folder; call this before the work whose figures go there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BylotError(
            f"{path} cannot be a folder for figures: {error.strerror}",
            remedy="give another folder",
        ) from None
    return path


def load_pyplot() -> Any:
    """Import matplotlib without a display; raise an error that names the extra if it is missing."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise BylotError(f"figures need matplotlib: {install_command('plot')}") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def make_panels(
    rows: int, columns: int, size: tuple[float, float], title: str, **shared: Any
) -> tuple[Any, Any]:
    """A figure with a title, and a (rows, columns) array of axes."""
    figure, axes = load_pyplot().subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, **shared
    )
    figure.suptitle(title)
    return figure, axes


def put_legend(figure: Any, columns: int, *handles_and_names: Sequence[Any]) -> None:
    """One legend for all panels, outside them; by default of all that is labelled."""
    figure.legend(
        *handles_and_names,
        ncols=columns,
        loc="outside lower center",
        frameon=False,
        fontsize=9,
    )


def save_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Save as PNG and SVG; the same figure gives the same bytes: no date, no random ids."""
    plt = load_pyplot()
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=150)
    figure.set_layout_engine("none")  # the layout of the PNG fits; a second one takes as long
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    plt.close(figure)
    files = {folder / f"{name}.png": png, folder / f"{name}.svg": svg}
    for path, content in files.items():
        save_file(path, content.getvalue())
    return [*files]


def draw_std_band(
    axes: Any, x: Any, curve: SeedCurves, style: SeriesStyle, alpha: float, least: float = -np.inf
) -> None:
    """Shade one standard deviation around the mean, but not below `least`."""
    low = np.maximum(curve.mean - curve.std, least)
    axes.fill_between(x, low, curve.mean + curve.std, color=style.colour, alpha=alpha, linewidth=0)


KNOWN_POLICY_STYLES = {**PAPER_POLICY_STYLES, **BEYOND_POLICY_STYLES}


def assign_styles(policies: Sequence[str]) -> dict[str, SeriesStyle]:
    """A style for each policy, no two of one colour as long as there are colours.

    >>> made = assign_styles(["tangent", "ts"])  # both are green on their own
    >>> made["tangent"].colour == made["ts"].colour
    False
    """
    made: dict[str, SeriesStyle] = {}
    for policy in policies:
        taken = {style.colour for style in made.values()}
        own = [KNOWN_POLICY_STYLES[policy]] if policy in KNOWN_POLICY_STYLES else []
        free = [
            style for style in [*own, *KNOWN_POLICY_STYLES.values()] if style.colour not in taken
        ]
        made[policy] = (free or own or [*KNOWN_POLICY_STYLES.values()])[0]._replace(name=policy)
    return made
