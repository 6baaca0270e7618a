"""The logs of the service's processes: one JSON object in a line, in files that don't grow for ever."""

import json
import logging
import traceback
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BYTES, _KEPT = 10_000_000, 5


class Lines(logging.Formatter):
    """A record as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        told = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "who": record.name,
            "thread": record.threadName,
            "what": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            told["trace"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(told, ensure_ascii=False)


class Kept(RotatingFileHandler):
    """A file that holds up nobody who writes to it: what finds no room there is lost."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Leave it: the standard way prints a trace for each line."""


def write_to(path: "Path") -> None:
    """Write what this process logs into a file, from now on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = Kept(path, maxBytes=_BYTES, backupCount=_KEPT, delay=True, encoding="utf-8")
    handler.setFormatter(Lines())
    root = logging.getLogger("runnel")
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    root.propagate = False
