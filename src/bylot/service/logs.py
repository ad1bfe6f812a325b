"""Logs as lines of JSON on stderr: for machines that gather them, and legible to people."""

import json
import logging
import sys
from datetime import UTC, datetime

PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName", "color_message"}


class Lines(logging.Formatter):
    """One JSON object per line; whatever was given as `extra` is in it."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as a line."""
        line = {
            "at": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        given = {k: v for k, v in vars(record).items() if k not in PLAIN}
        line.update(
            (k, v) for k, v in given.items() if not k.startswith("_")
        )  # other packages' own
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up(level: str) -> None:
    """Send the logs of the service, and of what serves it, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name, least in (("bylot", level.upper()), ("uvicorn", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)
