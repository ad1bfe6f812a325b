"""Threads that validate problems and compile policies, so that no other request waits for them."""

import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from bylot.problem import Problem, at_most
from bylot.router.router import Router

log = logging.getLogger("bylot.server")

COMPILE_THREAD_PREFIX = "bylot-compile"
COMPILE_THREADS = 4  # one compiles at a time; the others build routers of compiled policies


def make_compile_pool() -> ThreadPoolExecutor:
    """Threads for slow work."""
    return ThreadPoolExecutor(COMPILE_THREADS, thread_name_prefix=COMPILE_THREAD_PREFIX)


def compile_default_policy() -> None:
    """Load the default policy, or compile it the first time, before the first router needs it."""
    start = time.monotonic()
    Router(Problem(["a", "b"], {"cost": [1.0, 2.0]}, [at_most("cost", 2.0)], draws=1))
    log.info("the default policy is ready after %.1f s", time.monotonic() - start)


def exit_while_compiling(grace_s: float = 1.0) -> None:
    """End the process if a policy is still being compiled: compilation cannot be interrupted, and
    its request is gone. Everything that was answered is in the store.
    """
    workers = [one for one in threading.enumerate() if one.name.startswith(COMPILE_THREAD_PREFIX)]
    for worker in workers:
        worker.join(grace_s)
    if any(worker.is_alive() for worker in workers):
        sys.stderr.flush()
        os._exit(0)
