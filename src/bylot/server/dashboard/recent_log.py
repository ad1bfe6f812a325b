"""What the charts show of the last decisions of a log: reference levels of reward, and outages."""

from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct

from bylot.client.decision_log import LogReader
from bylot.errors import BylotError
from bylot.evaluate.log import find_unknown_experts, log_from_entries
from bylot.evaluate.reference_levels import ReferenceLevel, estimate_reference_levels
from bylot.eventlog.events import BODY_DECODERS, ConfigChanged, format_timestamp
from bylot.router.config import RouterConfig
from bylot.store import Event

MAX_EVENTS_READ = 5_000
MAX_OUTAGES = 100
DAY_US = 86_400_000_000


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A version of a router's configuration: since when, and by whom."""

    at: str  # RFC 3339, UTC
    by: str | None  # id of the API key
    config: RouterConfig
    seq: int = 0  # of its event


class Outage(Struct, frozen=True):
    """Successive decisions at which a limit could not be met."""

    start: str  # RFC 3339, UTC
    end: str
    decisions: int


class RecentLog(Struct, frozen=True):
    """The last decisions of a log."""

    decisions: int = 0
    levels: list[ReferenceLevel] = []
    outages: list[Outage] = []


def summarise_events(
    prefix: str, events: Sequence[Event], changes: Sequence[ConfigChange]
) -> RecentLog:
    """What the last events of a log say, under the latest configuration."""
    if not events or not changes:
        return RecentLog()
    reader, made = LogReader(prefix), list[tuple[int, bool]]()
    before = [one.config for one in changes if one.seq <= events[0].seq] or [changes[0].config]
    reader.apply(0, None, "", ConfigChanged(before[-1]))
    for event in events:
        if event.of is None or event.of in reader.entries:  # else of an earlier decision
            body = BODY_DECODERS[event.kind](event.body)
            reader.apply(event.seq, event.of, event.seal.hex(), body)
            if event.kind == "decided":
                made.append((event.at, body.feasible))
    outages = []
    for feasible, run in groupby(made, key=lambda one: one[1]):
        times = [format_timestamp(at) for at, _ in run]
        if not feasible:
            outages.append(Outage(times[0], times[-1], len(times)))
    config = changes[-1].config
    problem, entries = config.build_problem(), reader.read(())
    if len(made) > 1 and made[-1][0] > made[0][0]:
        days = (made[-1][0] - made[0][0]) / DAY_US
        problem = problem.at_traffic(len(made) / days)  # what budgets mean per request
    try:
        log = log_from_entries(problem, entries, find_unknown_experts(problem, entries))
        levels = estimate_reference_levels(log, config.rewards)
    except BylotError as error:
        levels = [ReferenceLevel(name="reference levels", reason=error.what)]
    return RecentLog(len(made), levels, outages[-MAX_OUTAGES:])
