"""What a sweep over the settings would have gained: it is told, and no setting is taken from it."""

from typing import NamedTuple

import numpy as np

from bylot.numerics.jit import Floats
from bylot.reports.blocks import TableBlock
from bylot_paper.analysis import GroupKey, RecordGroups
from bylot_paper.policy_settings import GUARDED_POLICIES, format_default_tuning
from bylot_paper.report.beyond.places import HARD_CASES, settings_keys


class SettingsSweep(NamedTuple):
    """Regret of S settings of a policy in four places on some seeds; the default is one of them."""

    policy: str
    settings: list[str]
    lost: Floats  # (S, places, seeds)
    feasible: float  # of all runs

    @property
    def usual(self) -> int:
        """Which setting is the default."""
        return self.settings.index(format_default_tuning(self.policy))

    @property
    def best(self) -> int:
        """Which one setting is best over all places and seeds."""
        return int(self.lost.mean(axis=(1, 2)).argmin())

    @property
    def default(self) -> float:
        """Mean regret of the default."""
        return float(self.lost[self.usual].mean())

    @property
    def gain(self) -> float:
        """What the best setting would have over the default."""
        return self.default - float(self.lost[self.best].mean())

    @property
    def gain_elsewhere(self) -> float:
        """The same where the best of all other seeds is judged on each seed in turn."""
        by_seed = self.lost.mean(axis=1)  # (S, seeds)
        gains = []
        for seed in range(by_seed.shape[1]):
            pick = np.delete(by_seed, seed, axis=1).mean(axis=1).argmin()
            gains.append(by_seed[self.usual, seed] - by_seed[pick, seed])
        return float(np.mean(gains))


def collect_sweeps(groups: RecordGroups) -> list[SettingsSweep]:
    """Of every policy whose settings were swept on several seeds, the default among them."""
    found = []
    for policy in GUARDED_POLICIES:
        settings = settings_keys(groups, policy)
        if format_default_tuning(policy) in settings:
            keys = [key for some in settings.values() for key in some]
            kept = np.concatenate([groups.values(key, "outside") <= 0 for key in keys])
            seeds = min(len(groups[key]) for key in keys)
            lost = np.array(
                [list_regrets_by_place(groups, some, seeds) for some in settings.values()]
            )
            if seeds > 1:
                found.append(SettingsSweep(policy, list(settings), lost, float(kept.mean())))
    return found


def list_regrets_by_place(groups: RecordGroups, keys: list[GroupKey], seeds: int) -> list[Floats]:
    """The regret of each seed in each place, in the order of the places."""
    at = {(key.level, key.environment): key for key in keys}
    return [groups.values(at[where], "regret_true")[:seeds] for where in HARD_CASES]


def tabulate_settings(found: list[SettingsSweep]) -> TableBlock | None:
    """A row a policy."""
    head = (
        *("policy", "best setting of all", "settings tried", "seeds", "regret of the default"),
        *("of the best setting", "of the worst", "of the best of each place", "feasible runs"),
    )
    rows = []
    for one in found:
        over_all, in_places = one.lost.mean(axis=(1, 2)), one.lost.mean(axis=2)
        rows.append(
            (
                *(one.policy, one.settings[one.best].replace(",", ", "), str(len(one.settings))),
                str(one.lost.shape[2]),
                f"{one.default:.4f}",
                f"{over_all.min():.4f}",
                f"{over_all.max():.4f}",
                f"{in_places.min(axis=0).mean():.4f}",
                f"{one.feasible:.1%}",
            )
        )
    caption = "What a sweep over settings would have gained: mean regret over four places"
    return TableBlock(caption, head, rows, words=2) if rows else None
