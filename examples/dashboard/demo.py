"""A server on this machine, and an application that sends it requests: look at the dashboard.

`make serve` runs it. Ctrl-C ends it; the next start continues the same router.
"""

import argparse
import os
import sys
import threading
import time
import webbrowser
from contextlib import closing, suppress
from pathlib import Path

from bylot import Client
from bylot.demo import DEMO_ENVIRONMENT, DEMO_ROUTER, SKILLS, write_demo_problem
from bylot.errors import BylotError, RouterNotFound
from bylot.server.app import open_listening_socket, run_server
from bylot.server.settings import ServerSettings

HOST = "127.0.0.1"
FIRST_REQUESTS = 2_000  # sent without a pause, so that there is something to see
REQUESTS_PER_S = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/serve"), help="folder of the store")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (0: a free one)")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        with closing(open_listening_socket(HOST, given.port)) as probe:
            port = probe.getsockname()[1]  # nobody else listens there and would get the requests
        application = threading.Thread(target=run_application, args=(port, given.out), daemon=True)
        application.start()
        store = f"sqlite:///{given.out / 'bylot.db'}"
        return run_server(ServerSettings(store=store, host=HOST, port=port))
    except BylotError as error:
        print(f"{error}; make serve PORT=8001", file=sys.stderr)
        return 1


def run_application(port: int, folder: Path) -> None:
    """Create a router with limits unless it exists, then ask it for panels and report rewards."""
    file = write_demo_problem(folder)
    experts, kinds = file.problem.experts, list(SKILLS)
    page = f"http://{HOST}:{port}/routers/{DEMO_ROUTER}"
    try:
        with Client(f"http://{HOST}:{port}") as client:
            router = client.router(DEMO_ROUTER)
            try:
                start = router.status().decisions
            except RouterNotFound:
                client.create(DEMO_ROUTER, file.problem, max_contexts=len(kinds))
                start = 0
            print(f"\nThe dashboard: {page}\nCtrl-C ends this.\n", flush=True)
            open_browser(page)
            for t in range(start, sys.maxsize):
                values, contexts = DEMO_ENVIRONMENT.rounds(t, t + 1, seed=0)
                decision = router.decide(kinds[contexts[0]])
                scores = dict(zip(experts, values[0, 0].tolist(), strict=True))
                router.reward(decision.id, max(scores[name] for name in decision.subset))
                if t == start + FIRST_REQUESTS:
                    print(f"{FIRST_REQUESTS:,} requests sent; now {REQUESTS_PER_S:g} per second")
                time.sleep(0.0 if t < start + FIRST_REQUESTS else 1 / REQUESTS_PER_S)
    except BylotError as error:
        print(f"no more requests are sent: {error}", file=sys.stderr)


def open_browser(page: str) -> None:
    """Open a page if a person looks at this terminal and there is a browser with a window."""
    has_screen = sys.platform in ("darwin", "win32")
    has_screen = has_screen or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
    if has_screen and sys.stdout.isatty():
        with suppress(webbrowser.Error):
            webbrowser.open(page)


if __name__ == "__main__":
    sys.exit(main())
