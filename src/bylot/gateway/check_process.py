"""A child process for patterns and JSON schemas: one that takes too long is ended, not waited for.

A pattern can take exponential time on a hostile text, and so can a schema that came with a request.
Python cannot interrupt either: `re` keeps the interpreter lock, and a thread cannot be ended. In a
child process, they do not stop the event loop. Jobs wait for each other, for a while only, and
callers take turns: however many jobs one has, one of them is before those of others. Schemas that
come with requests have a process apart from patterns and schemas of the configuration.
"""

import asyncio
import atexit
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from bylot.gateway.answers import ScorerError

PROGRAM = Path(__file__).with_name("check_program.py")
JOB_S, START_S = 2.0, 60.0
MAX_WAIT_S = 2.0
MAX_CHECKED_CHARS = 200_000  # of a text; the rest is not looked at


class CheckProcess:
    """Runs jobs one after the other; the process starts with the first one and after an end.

    job_s: seconds that a job may take
    turns: held by the job of a caller that runs or is the next one
    """

    def __init__(self, job_s: float = JOB_S) -> None:
        self.job_s = job_s
        self.process: subprocess.Popen[str] | None = None
        self.executor: ThreadPoolExecutor | None = None
        self.turns: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()

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
        loop = asyncio.get_running_loop()
        turn = self.turns.setdefault((loop, CALLER.get()), asyncio.Lock())
        try:
            async with asyncio.timeout(self.job_s + MAX_WAIT_S), turn:
                line = json.dumps({**job, "texts": [text[:MAX_CHECKED_CHARS] for text in texts]})
                answer = await loop.run_in_executor(self.executor, self.ask, line)
        except TimeoutError:
            raise ScorerError(f"no check of answers within {self.job_s + MAX_WAIT_S:g} s") from None
        result = json.loads(answer)
        if "error" in result:
            raise ScorerError(result["error"])
        return list(result["results"])

    def ask(self, line: str) -> str:
        """Send a job and wait for its result; only the thread of the executor calls this."""
        process = self.process
        if process is None or process.poll() is not None:
            self.end_process()
            try:
                process = self.process = start_process()
            except OSError as error:
                raise ScorerError(
                    "the process that checks answers does not start", detail=f": {error}"
                ) from error
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
            with suppress(OSError), process:  # it closes the streams, with what was not read
                pass

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
"""The process of all patterns and schemas of the configuration."""
CALLER_CHECKS = CheckProcess(job_s=0.5)
"""The process of all schemas that come with requests."""
CALLER: ContextVar[str | None] = ContextVar("bylot_caller", default=None)
"""The API key whose request is scored."""
atexit.register(CHECKS.close)
atexit.register(CALLER_CHECKS.close)
