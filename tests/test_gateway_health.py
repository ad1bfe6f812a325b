"""Members that fail are paused, tried again by one request, and available to all if it succeeds."""

from bylot.gateway.answers import Failure
from bylot.gateway.asking import MAX_PAUSE_S, HealthTable
from panel_outcomes import answer, failure

NAMES = ("a", "b", "c")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def make_table() -> tuple[HealthTable, Clock]:
    clock = Clock()
    return HealthTable(after=2, pause_s=30.0, clock=clock), clock


def fail(table: HealthTable, member: str, **facts: object) -> None:
    table.begin(member)
    table.end(Failure(**{**to_dict(failure(member, 0.0)), **facts}))  # type: ignore[arg-type]


def to_dict(one: Failure) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def test_all_are_available_until_one_fails_often_enough() -> None:
    table, _ = make_table()
    fail(table, "a")
    assert table.list_available(NAMES) is None
    fail(table, "a")
    assert table.list_available(NAMES) == ["b", "c"]


def test_a_success_forgets_failures() -> None:
    table, _ = make_table()
    fail(table, "a")
    table.end(answer("a", 0.0))
    fail(table, "a")
    assert table.list_available(NAMES) is None


def test_after_the_pause_one_request_tries_the_member() -> None:
    table, clock = make_table()
    fail(table, "a")
    fail(table, "a")
    clock.now += 29.0
    assert table.list_available(NAMES) == ["b", "c"]
    clock.now += 1.0
    assert table.list_available(NAMES) == list(NAMES) or table.list_available(NAMES) is None
    table.begin("a")
    assert table.list_available(NAMES) == ["b", "c"], "a second request does not try it too"
    table.end(answer("a", 0.0))
    assert table.list_available(NAMES) is None


def test_a_failed_try_pauses_the_member_again() -> None:
    table, clock = make_table()
    fail(table, "a")
    fail(table, "a")
    clock.now += 30.0
    fail(table, "a")
    assert table.list_available(NAMES) == ["b", "c"]


def test_a_cancelled_try_leaves_the_member_to_the_next_request() -> None:
    table, clock = make_table()
    fail(table, "a")
    fail(table, "a")
    clock.now += 30.0
    table.begin("a")
    table.end(failure("a", None, "cancelled"))
    assert table.list_available(NAMES) in (None, list(NAMES))


def test_a_member_that_asks_for_a_pause_gets_it_at_once_but_not_for_ever() -> None:
    table, clock = make_table()
    fail(table, "a", reason="rate_limited", status=429, retry_after_s=5.0)
    assert table.list_available(NAMES) == ["b", "c"]
    clock.now += 5.0
    assert table.list_available(NAMES) in (None, list(NAMES))
    fail(table, "b", reason="rate_limited", status=429, retry_after_s=1e9)
    clock.now += MAX_PAUSE_S
    assert table.list_available(NAMES) in (None, list(NAMES))


def test_a_wrong_request_is_not_the_fault_of_the_member() -> None:
    table, _ = make_table()
    for _ in range(5):
        fail(table, "a", reason="http_400", status=400)
    assert table.list_available(NAMES) is None


def test_if_all_are_paused_all_are_tried() -> None:
    table, _ = make_table()
    for name in NAMES:
        fail(table, name)
        fail(table, name)
    assert table.list_available(NAMES) is None
