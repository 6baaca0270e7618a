"""Write the log of a run: every step with its time, and the full trace of every error."""

import threading
import time
from contextlib import suppress
from pathlib import Path

from runnel.model.secret_mask import SecretMask
from runnel.private_files import create_private_file, create_private_folder
from runnel.run.results.run_result import Event
from runnel.visible_text import show_invisible

_NO_SECRETS = SecretMask()


class RunLog:
    """The log file of one run, written line by line, so that a crash loses nothing; without the secrets of `mask`."""

    def __init__(self, folder: Path, run: str, mask: SecretMask = _NO_SECRETS) -> None:
        self.path = folder / f"{run}.log"
        create_private_folder(folder)
        self._guard = threading.Lock()
        self._mask = mask

    def write(self, text: str) -> None:
        """Append text with the time; if the disk is full, the text is lost and the run goes on."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = show_invisible(self._mask.hide(text.rstrip()))
        with suppress(OSError), self._guard:
            create_private_file(self.path)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{stamp} {line}\n")

    def write_event(self, event: Event) -> None:
        """Append an event, unless it is mere progress."""
        if event.kind == "progress":
            return
        result = event.outcome
        if result is None:
            self.write(
                " ".join(part for part in (event.kind, str(event.table or ""), event.action, event.text) if part)
            )
            return
        rows = "" if result.rows is None else f" {result.rows} rows"
        self.write(f"{result.state} {result.table} {result.action}{rows} in {result.seconds:.3f} s: {result.reason}")
        for warning in result.warnings:
            self.write(f"warning {result.table}: {warning}")
        if result.error is not None:
            self.write(str(result.error))
