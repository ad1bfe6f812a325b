"""What the figures share: styles of levels and environments, grids of panels, legends, scales."""

from collections.abc import Iterable, Sequence
from typing import Any

from bylot.reports.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SeriesStyle, load_pyplot

LEVEL_STYLES = {
    "tight": SeriesStyle("tight", BLUE, "-", "o"),
    "medium": SeriesStyle("medium", ORANGE, (0, (6, 1.5)), "s"),
    "loose": SeriesStyle("loose", GREEN, (0, (3, 1, 1, 1)), "^"),
    "none": SeriesStyle("no limits", GREY, (0, (1, 1)), "D"),
}
BEYOND_LEVEL_STYLES = {
    **{name: LEVEL_STYLES[name] for name in ("tight", "medium", "loose")},
    "stress": SeriesStyle("stress", PURPLE, (0, (5, 1, 1, 1)), "D"),
}
"""Beyond the paper: its limits and a harder level."""

ENVIRONMENT_LABELS = {"stochastic": "stochastic", "regime": "regime-switching"}


def make_panels(
    rows: int, columns: int, size: tuple[float, float], title: str, **shared: Any
) -> tuple[Any, Any]:
    """A figure with a title, and a (rows, columns) array of axes."""
    figure, axes = load_pyplot().subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, **shared
    )
    figure.suptitle(title)
    return figure, axes


def make_handle(**style: Any) -> Any:
    """A line or a marker for a legend."""
    return load_pyplot().matplotlib.lines.Line2D([], [], **style)


def make_patch(colour: str, alpha: float) -> Any:
    """A coloured area for a legend."""
    return load_pyplot().matplotlib.patches.Patch(color=colour, alpha=alpha, linewidth=0)


def put_legend(figure: Any, handles: Sequence[Any], names: Sequence[str], columns: int) -> None:
    """One legend for all panels, outside them."""
    place = {"loc": "outside lower center", "frameon": False, "fontsize": 9}
    figure.legend(handles, names, ncols=columns, **place)


def label_panels(panels: Iterable[Any], text: str) -> None:
    """One label for the horizontal axes."""
    for axes in panels:
        axes.set_xlabel(text)


def separate(axes: Any, count: int, vertical: bool = True) -> None:
    """Thin lines between `count` categories at 0, 1, ..."""
    for edge in range(1, count):
        draw = axes.axvline if vertical else axes.axhline
        draw(edge - 0.5, color=GREY, linewidth=0.6, alpha=0.6)


def set_log_scales(axes: Any, near_zero: float) -> None:
    """Logarithmic axes, linear within `near_zero` of 0, which the curves reach."""
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=near_zero, linscale=0.6)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.grid(alpha=0.25, linewidth=0.6)
