"""The machine's chromium, and applications served to it."""

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


def launch_chromium(started: Any) -> Any:
    """The machine's chromium, or None."""
    sandbox = [] if os.getuid() else ["--no-sandbox"]
    return CHROMIUM and started.chromium.launch(executable_path=CHROMIUM, args=sandbox)


@contextlib.contextmanager
def run_uvicorn(server: uvicorn.Server) -> Iterator[str]:
    """Run a server in a thread; yields its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()
