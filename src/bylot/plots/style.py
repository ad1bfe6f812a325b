"""How figures look: colours that colour-blind eyes can part, lines that survive a grey print."""

import io
from pathlib import Path
from typing import Any, NamedTuple

from bylot.errors import BylotError
from bylot.extras import install
from bylot.whole import keep

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"  # Okabe and Ito's, and grey
PURPLE, SKY, AMBER, BLACK = "#CC79A7", "#56B4E9", "#E69F00", "#000000"
STYLES = [(BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (PURPLE, ":"), (SKY, "-")]


class Look(NamedTuple):
    """How one series is drawn; line and marker differ as well as the colour."""

    name: str
    colour: str
    line: Any
    marker: str


POLICIES = {
    "omd": Look("OMD (the paper's)", BLUE, "-", "o"),
    "ts-bwk": Look("TS-BwK", SKY, (0, (5, 1.5)), "s"),
    "cbwk": Look("CBwK", PURPLE, (0, (4, 1.5, 1, 1.5)), "D"),
    "moe": Look("MoE", BLACK, (0, (1, 1)), "P"),
    "ts": Look("TS", GREEN, (0, (7, 2)), "^"),
    "cucb": Look("CUCB", ORANGE, (0, (3, 1, 1, 1, 1, 1)), "v"),
    "greedy": Look("Greedy", AMBER, (0, (2, 1)), "<"),
    "random": Look("Random", "#8A8A8A", (0, (1, 2)), "X"),
}
"""The eight policies in the order of legends: those that know of limits, then those that do not."""

OURS = {
    **{name: POLICIES[name] for name in ("omd", "ts-bwk", "cbwk")},
    "strict": Look("strict", AMBER, (0, (2, 1)), "<"),
    "tangent": Look("tangent", GREEN, (0, (7, 2)), "^"),
    "distinct": Look("distinct", ORANGE, (0, (12, 1.5)), "v"),
}
"""Past the paper: its best beside ours."""

LEVELS = {
    "tight": Look("tight", BLUE, "-", "o"),
    "medium": Look("medium", ORANGE, (0, (6, 1.5)), "s"),
    "loose": Look("loose", GREEN, (0, (3, 1, 1, 1)), "^"),
    "none": Look("no limits", GREY, (0, (1, 1)), "D"),
}
HARDER = {
    **{name: LEVELS[name] for name in ("tight", "medium", "loose")},
    "stress": Look("stress", PURPLE, (0, (5, 1, 1, 1)), "D"),
}
"""Past the paper: its limits and one more level."""

ENVIRONMENTS = {"stochastic": "stochastic", "regime": "regime-switching"}


def folder_for(path: Path) -> Path:
    """The folder, made if need be: to be asked before the work whose figures go there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BylotError(
            f"{path} cannot be a folder for figures: {error.strerror}; give another folder"
        ) from None
    return path


def drawing() -> Any:
    """matplotlib without a screen; it is an extra, so its absence is explained."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise BylotError(f"figures need matplotlib: {install('plot')}") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def written(figure: Any, folder: Path, name: str) -> list[Path]:
    """Save as PNG and SVG; the same figure gives the same bytes, so no date and no random ids."""
    plt = drawing()
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=150)
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    plt.close(figure)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path, content in zip(paths, (png, svg), strict=True):
        keep(path, content.getvalue())
    return paths
