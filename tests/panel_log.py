"""The log of a gateway's router: its decisions, who took part in each, and their settlements."""

import contextlib
import math
from dataclasses import dataclass, field

from bylot.eventlog.events import BODY_DECODERS
from bylot.router.changes import MemberReplaced, PackedDecision, RewardReceived
from bylot.store import open_store


@dataclass
class PanelLog:
    """What a log says of each decision, by its sequence number; cancelled ones are left out."""

    decisions: dict[int, PackedDecision] = field(default_factory=dict)
    replaced: dict[int, list[MemberReplaced]] = field(default_factory=dict)
    reports: dict[int, list[RewardReceived]] = field(default_factory=dict)
    cancelled: int = 0

    def list_members(self, seq: int) -> set[str]:
        """The panel of a decision, with members that failed and their substitutes."""
        added = {one.added for one in self.replaced.get(seq, [])}
        return added.union(self.decisions[seq].draws)

    def compute_dollars(self) -> float:
        """The dollars of all decisions: as settled, else as declared of the last panel."""
        return math.fsum(map(self.find_dollars, self.decisions))

    def find_dollars(self, seq: int) -> float:
        """The dollars of a decision."""
        given = [one.spend for one in self.reports.get(seq, []) if one.spend is not None]
        declared = [one.spend for one in self.replaced.get(seq, [])]
        return [self.decisions[seq].spend, *declared, *given][-1]["usd"]


def read_panel_log(store_url: str) -> PanelLog:
    """The log of the only router of a store."""
    log = PanelLog()
    with contextlib.closing(open_store(store_url, read_only=True)) as store:
        (row,) = store.routers(limit=2)
        for event in store.events(row.number, -1, 10**9):
            body, of = BODY_DECODERS[event.kind](event.body), event.of or 0
            if isinstance(body, PackedDecision):
                log.decisions[event.seq] = body
            elif isinstance(body, RewardReceived):
                log.reports.setdefault(of, []).append(body)
            elif isinstance(body, MemberReplaced):
                log.replaced.setdefault(of, []).append(body)
            elif event.kind == "cancelled":
                del log.decisions[of]
                log.cancelled += 1
    return log
