"""Clicks in files, read as a stream."""

from typing import Any

from tests.run.project import Project, did

SOURCE = 'rn.source("ods.clicks", rn.files("data/*.jsonl", schema="id long, page string, user string, ts timestamp"))\n'


class Clicks(Project):
    """A project whose source has clicks: (id, page, user, minute, second)."""

    _files = 0

    def streams(self, text: str) -> None:
        """Declare the source and some tasks."""
        self.flow(SOURCE + text, orders=None)

    def click(self, *rows: tuple[int, str, str, str]) -> None:
        """Write clicks into one more file: id, page, user and time within the first of January."""
        lines = [
            f'{{"id": {number}, "page": "{page}", "user": "{user}", "ts": "2026-01-01T{at}Z"}}\n'
            for number, page, user, at in rows
        ]
        self.write(f"data/{self._files:04d}.jsonl", "".join(lines))
        self._files += 1

    def ran(self, *select: str, **options: Any) -> dict[str, str]:
        """Run, and return what was done."""
        found = self.run(*select, **options)
        assert not found.errors, str(found.errors[0])
        return did(found)
