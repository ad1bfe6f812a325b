"""PolicyCompiler: which policies are compiled, and the work of compiling them beside the requests.

Compiling takes up to a minute, and in a thread of the server it would delay every request. A child
process compiles into the cache on disk, and a thread loads the result from there.
"""

import gc
import json
import logging
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing

from numba.core import event

from bylot.errors import PolicyCompiling, StoreUnavailable
from bylot.eventlog.loading import read_stored_config
from bylot.numerics.compile_cache import CACHE_FOLDER
from bylot.policies import Policy, policy_to_data, resolve_policy
from bylot.router.exercise import exercise_policy, make_exercise_problem
from bylot.store import RouterRow, Store, open_store

log = logging.getLogger("bylot.server")

COMPILE_THREAD_PREFIX = "bylot-compile"
MAX_COMPILATIONS = 2  # at once, each in a process of its own
STORE_RETRY_S = 1.0
CHILD_CODE = """
import json, sys
from bylot.policies import policy_from_data
from bylot.router.exercise import exercise_policy
exercise_policy(policy_from_data(json.loads(sys.argv[1])))
"""


class CompilationNeeded(Exception):
    """Something is not in the cache."""


class CompilationRefusal(event.Listener):  # type: ignore[misc]
    """Lets nothing be compiled in one thread; others may compile meanwhile."""

    def __init__(self, thread: int) -> None:
        self.thread = thread

    def on_start(self, event: event.Event) -> None:
        if threading.get_ident() == self.thread:
            raise CompilationNeeded

    def on_end(self, event: event.Event) -> None:
        """Nothing was begun."""


class PolicyCompiler:
    """Compiles each policy once, when it is first needed. Thread-safe.

    jobs:     by the name of the compiled code: since when it is wanted, and the work for it
    at_start: the names that stored routers and new ones need at the start; None: not known yet
    policies: of routers by their number, since a policy cannot be edited; None: unreadable
    """

    def __init__(self, store_url: str) -> None:
        self.store_url = store_url
        self.jobs: dict[str, tuple[float, Future[None]]] = {}
        self.at_start: tuple[str, ...] | None = None
        self.policies: dict[int, Policy | None] = {}
        self.children: set[subprocess.Popen[str]] = set()
        self.closed = False
        self.lock = threading.Lock()
        self.pool = ThreadPoolExecutor(MAX_COMPILATIONS, COMPILE_THREAD_PREFIX)

    def start(self) -> None:
        """Begin with the policies of all stored routers, or with the default if there are none."""
        self.pool.submit(self.request_all)

    def close(self) -> None:
        """Stop compiling."""
        with self.lock:
            self.closed = True
            self.pool.shutdown(wait=False, cancel_futures=True)
            for child in self.children:
                child.terminate()

    def request_all(self) -> None:
        """Compile the policies of all stored routers, then the default one, for new routers. The
        server is ready without it, unless no router is stored.
        """
        default = resolve_policy("auto", make_exercise_problem())
        while not self.closed and self.at_start is None:
            try:
                with closing(open_store(self.store_url, read_only=True)) as store:
                    after = ""
                    while rows := store.routers(after):
                        after = rows[-1].name
                        for policy in filter(None, [self.find_policy(store, one) for one in rows]):
                            self.request(policy)
                if not self.jobs:
                    self.request(default)
                self.at_start = tuple(self.jobs)
                self.request(default)
            except Exception as error:
                log.warning("the policies of stored routers cannot be read: %s", error)
                time.sleep(STORE_RETRY_S)

    def find_policy(self, store: Store, row: RouterRow) -> Policy | None:
        """The policy of a stored router; None if its log is damaged or of a later version."""
        if row.number not in self.policies:
            policy = None
            try:
                config = read_stored_config(store, row)
                policy = config.build_policy() if config else None
            except StoreUnavailable:
                raise
            except Exception as error:  # reported when the router is opened
                log.debug("router %s: its policy cannot be read: %s", row.name, error)
            self.policies[row.number] = policy if isinstance(policy, Policy) else None
        return self.policies[row.number]

    def prepare(self, store: Store, name: str) -> None:
        """Begin to compile the policy of a stored router."""
        row = store.find(name)
        policy = row and self.find_policy(store, row)
        if policy:
            self.request(policy)

    def check_router(self, store: Store, row: RouterRow) -> None:
        """PolicyCompiling if a router cannot be loaded without compiling its policy."""
        policy = self.find_policy(store, row)
        if policy is not None:
            self.require(policy)

    def require(self, policy: Policy, wait_s: float = 0.0) -> None:
        """PolicyCompiling, unless a policy is compiled or will be within this time."""
        since, work = self.request(policy)
        wait([work], wait_s)
        if not work.done():
            seconds = time.monotonic() - since
            raise PolicyCompiling(
                f"policy {policy.name!r} is being compiled ({seconds:.0f} s so far)"
            )

    def is_ready(self) -> bool:
        """Whether all policies that are needed at the start are compiled."""
        return self.at_start is not None and all(
            self.jobs[name][1].done() for name in self.at_start
        )

    def check_ready(self) -> None:
        """PolicyCompiling, unless all policies that are needed at the start are compiled."""
        if self.at_start is None:
            raise PolicyCompiling("the policies of the stored routers are being read")
        waiting = [name for name in self.at_start if not self.jobs[name][1].done()]
        if waiting:
            count, seconds = len(self.at_start), time.monotonic() - self.jobs[waiting[0]][0]
            raise PolicyCompiling(
                f"compiling policies: {count - len(waiting)} of {count} are ready, waiting for "
                f"{', '.join(waiting)} ({seconds:.0f} s so far)"
            )

    def request(self, policy: Policy) -> tuple[float, "Future[None]"]:
        """Since when the code of a policy is wanted, and the work for it, which may be done."""
        name = policy.name
        with self.lock:
            if name not in self.jobs:
                self.jobs[name] = time.monotonic(), self.pool.submit(self.compile, name, policy)
            return self.jobs[name]

    def compile(self, name: str, policy: Policy) -> None:
        """Load the code of a policy, compiled by a child process if it is not in the cache.

        If that fails, its routers are opened all the same, and their requests get the reason.
        """
        start, how = time.monotonic(), "loaded"
        try:
            if not load_from_cache(policy):
                log.info("compiling policy %s, once for this version on this machine", name)
                self.run_child(policy)
                if self.closed:
                    return
                exercise_policy(policy)  # compiles what the child could not, or not keep
                how = "compiled"
            gc.collect()
            gc.freeze()  # compiled code lives as long as the server: no collection visits it
            log.info("policy %s is ready, %s in %.1f s", name, how, time.monotonic() - start)
        except Exception as error:
            log.error("policy %s cannot be compiled: %s", name, error, exc_info=error)

    def run_child(self, policy: Policy) -> None:
        """Compile a policy into the cache, in a process of its own, if there is a cache."""
        if CACHE_FOLDER is None or not os.access(CACHE_FOLDER, os.W_OK):
            return
        command = [sys.executable, "-P", "-c", CHILD_CODE, json.dumps(policy_to_data(policy))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with self.lock:
            if self.closed:  # nobody would stop it
                return
            child = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
            self.children.add(child)
        with child:
            said = child.communicate()[1]
        with self.lock:
            self.children.remove(child)
        if child.returncode and not self.closed:
            log.warning("the process that compiles %s has failed: %s", policy.name, said[-1000:])


def load_from_cache(policy: Policy) -> bool:
    """Load all code of a policy into this process; whether it was in the cache."""
    try:
        with event.install_listener("numba:compile", CompilationRefusal(threading.get_ident())):
            exercise_policy(policy)
        return True
    except CompilationNeeded:
        return False
