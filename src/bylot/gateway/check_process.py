"""A child process for patterns and JSON schemas: one that takes too long is ended, not waited for.

A pattern can take exponential time on a hostile text, and so can a schema that came with a request.
Python cannot interrupt either: `re` keeps the interpreter lock, and a thread cannot be ended. In a
child process, they do not stop the event loop. Jobs wait for each other, for a while only: a job
that would have to wait for too long is refused.
"""

import asyncio
import atexit
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bylot.gateway.answers import ScorerError

PROGRAM = Path(__file__).with_name("check_program.py")
JOB_S, START_S = 2.0, 60.0
MAX_WAIT_S, MAX_WAITING_JOBS = 2.0, 100
MAX_CHECKED_CHARS = 200_000  # of a text; the rest is not looked at


class CheckProcess:
    """Runs jobs one after the other; the process starts with the first one and after an end.

    job_s: seconds that a job may take
    """

    def __init__(self, job_s: float = JOB_S) -> None:
        self.job_s = job_s
        self.process: subprocess.Popen[str] | None = None
        self.executor: ThreadPoolExecutor | None = None
        self.waiting = 0  # jobs without a result

    async def find(
        self, pattern: str, texts: Sequence[str], ignore_case: bool = False
    ) -> list[str | None]:
        """What a pattern finds last in each text: its first group, or all it matches."""
        return await self.run({"pattern": pattern, "ignore_case": ignore_case}, texts)

    async def validate(self, schema: Any, texts: Sequence[str]) -> list[bool]:
        """Whether each text is JSON that meets a schema."""
        return await self.run({"schema": json.dumps(schema)}, texts)

    async def run(self, job: dict[str, Any], texts: Sequence[str]) -> list[Any]:
        """The results of a job, or ScorerError."""
        if not texts:
            return []
        if self.executor is None:
            self.executor = ThreadPoolExecutor(1, "bylot-checks")
        if self.waiting >= MAX_WAITING_JOBS:
            raise ScorerError(f"{self.waiting} checks of answers are waiting already")
        line = json.dumps({**job, "texts": [text[:MAX_CHECKED_CHARS] for text in texts]})
        self.waiting += 1
        work = asyncio.get_running_loop().run_in_executor(self.executor, self.ask, line)
        work.add_done_callback(self.end_waiting)
        try:
            answer = await asyncio.wait_for(asyncio.shield(work), self.job_s + MAX_WAIT_S)
        except TimeoutError:
            raise ScorerError(f"no check of answers within {self.job_s + MAX_WAIT_S:g} s") from None
        result = json.loads(answer)
        if "error" in result:
            raise ScorerError(result["error"])
        return list(result["results"])

    def end_waiting(self, work: "asyncio.Future[str]") -> None:
        """A job has ended, also if nobody waits for it any more."""
        self.waiting -= 1
        if not work.cancelled():
            work.exception()

    def ask(self, line: str) -> str:
        """Send a job and wait for its result; only the thread of the executor calls this."""
        process = self.process
        if process is None or process.poll() is not None:
            self.end_process()
            try:
                process = self.process = start_process()
            except OSError as error:
                reason = "the process that checks answers does not start"
                raise ScorerError(reason, detail=f": {error}") from error
            if not self.exchange(process, None, START_S):
                raise ScorerError("the process that checks answers does not start")
        answer = self.exchange(process, line, self.job_s)
        if not answer:
            raise ScorerError(f"checking the answers took longer than {self.job_s:g} s")
        return answer

    def exchange(self, process: subprocess.Popen[str], line: str | None, seconds: float) -> str:
        """The next line of the process, or none after it was ended."""
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            if line is not None:
                process.stdin.write(f"{line}\n")
                process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            self.end_process()
        return answer

    def end_process(self) -> None:
        """End the process, if there is one."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except OSError:  # what it had not read
                        continue

    def close(self) -> None:
        """End the process and the thread; a later job starts them again."""
        executor, self.executor = self.executor, None
        if executor is not None:
            executor.shutdown()
        self.end_process()


def start_process() -> subprocess.Popen[str]:
    """Start the program; -P keeps modules of its folder out of its imports."""
    return subprocess.Popen(
        [sys.executable, "-P", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="ascii",  # JSON escapes the rest
    )


CHECKS = CheckProcess()
"""The process that all scorers share."""
atexit.register(CHECKS.close)
