"""Write the logs of the service's processes as JSON lines, to files that are rotated by size."""

import json
import logging
import os
import traceback
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.model.secret_mask import SecretMask
from runnel.private_files import create_private_file, create_private_folder

if TYPE_CHECKING:
    from io import TextIOWrapper

_MAX_BYTES, _BACKUP_COUNT = 10_000_000, 5


class JsonLineFormatter(logging.Formatter):
    """Formats a log record as JSON, without the secrets of `mask`."""

    def __init__(self, mask: SecretMask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "who": record.name,
            "thread": record.threadName,
            "what": self._mask.hide(record.getMessage()),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["trace"] = self._mask.hide("".join(traceback.format_exception(*record.exc_info)))
        return json.dumps(fields, ensure_ascii=False)


class LogFileHandler(RotatingFileHandler):
    """A rotating log file of its owner that never fails its writer: if the disk is full, records are lost."""

    def _open(self) -> "TextIOWrapper":
        create_private_file(Path(self.baseFilename))
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore the error: the standard handler would print a trace for each record."""


def log_to_file(path: Path, secrets: frozenset[str]) -> None:
    """Send the log records of this process to a file from now on, and record its start, so that the file exists.

    `secrets` are hidden in it.
    """
    create_private_folder(path.parent)
    handler = LogFileHandler(path, maxBytes=_MAX_BYTES, backupCount=_BACKUP_COUNT, delay=True, encoding="utf-8")
    handler.setFormatter(JsonLineFormatter(SecretMask(secrets)))
    root = logging.getLogger("runnel")
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    root.propagate = False
    root.info("process %s started: %s", os.getpid(), path.stem)
