"""A synchronous standby takes the place of its primary: servers find it by the URL of the store."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from bylot.cli import main
from bylot.errors import StoreUnavailable
from bylot.eventlog.audit import audit_router
from bylot.store import open_store
from cluster_servers import ClusterServer, post, run_servers
from live_server import FIVE_EXPERTS
from postgres_pair import PostgresPair, run_postgres_pair
from stores import create_router

pytestmark = pytest.mark.skipif(
    "BYLOT_TEST_POSTGRES" in os.environ or not sys.platform.startswith("linux"),
    reason="a standby is promoted, so the servers must be ours",
)
LONG_ENOUGH_S = 60.0


def decide(server: ClusterServer, key: str) -> str:
    """The id of the decision under a key, however often it takes to get it."""
    deadline = time.monotonic() + LONG_ENOUGH_S
    while (made := post(server, "/v1/routers/r/decisions", {"key": key})).status_code != 201:
        assert time.monotonic() < deadline, made.text
        time.sleep(0.1)
    return str(made.json()["id"])


def fail_over(pair: PostgresPair, freeze: bool) -> None:
    """Take the primary away, promote the standby, and make sure that the old one is off."""
    if freeze:
        pair.primary.freeze()
    else:
        pair.primary.stop(signal.SIGQUIT)
    pair.promote()
    if freeze:
        pair.standby.kill()


@pytest.fixture(scope="module")
def pair() -> Iterator[PostgresPair]:
    with run_postgres_pair() as found:
        yield found


def test_a_commit_is_not_acknowledged_before_the_standby_has_it(pair: PostgresPair) -> None:
    """Not even if a time-out of PostgreSQL is shorter."""
    hasty = quote("-cstatement_timeout=500")
    url = f"{pair.url}&options={hasty}&tcp_user_timeout=2000"
    with (
        closing(open_store(url)) as store,
        pair.standby.paused(),
        pytest.raises(StoreUnavailable, match="no answer within 2 s"),
    ):
        create_router(store)


def test_servers_go_on_with_the_promoted_standby(pair: PostgresPair, tmp_path: Path) -> None:
    with run_servers(pair.url, tmp_path, 2) as servers:
        body = {"name": "r", "problem": FIVE_EXPERTS, "policy": "random"}
        assert post(servers[0], "/v1/routers", body).status_code == 201
        made = {key: decide(servers[0], key) for key in ("a", "b")}
        for freeze, key in ((False, "c"), (True, "d")):
            fail_over(pair, freeze)
            start = time.monotonic()
            made[key] = decide(servers[1], key)
            print(f"\nfreeze={freeze}: answered after {time.monotonic() - start:.1f} s")
            pair.rebuild_standby()
        assert len(set(made.values())) == 4
        assert {key: decide(servers[0], key) for key in made} == made
    for command in (["store", "migrate"], ["replay", "r"]):
        assert main([*command, "--store", pair.url]) == 0
    with closing(open_store(pair.url, read_only=True)) as store:
        assert audit_router(store, "r").fault is None
