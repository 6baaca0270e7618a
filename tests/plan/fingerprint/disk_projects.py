"""Projects on disk, loaded as a user's is, for tests of fingerprints."""

from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from runnel.declare import settings
from runnel.declare.loading.loader import load_flow
from runnel.declare.model.flow import Task
from runnel.names import TableName
from runnel.plan.fingerprint.fingerprints import Fingerprint, Fingerprinter

HEAD = """\
import runnel as rn
rn.source("ods.orders", rn.manual())
rn.source("ods.sellers", rn.manual())
"""
Files = dict[str, str] | str


@dataclass
class Shop:
    """A project whose files a test writes anew."""

    root: Path

    def write(self, files: Files) -> None:
        """Write flow files; a text alone is flows/a.py after three lines that declare the sources."""
        given = {"flows/a.py": files} if isinstance(files, str) else files
        for old in self.root.rglob("*.*"):
            if old.suffix in (".py", ".sql"):
                old.unlink()
        for name, text in {"runnel.toml": '[project]\nname = "shop"\n', **given}.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((HEAD if name == "flows/a.py" else "") + dedent(text).lstrip("\n"))

    def tasks(self, *overrides: str) -> dict[str, Task]:
        flow = load_flow(settings.load_settings(self.root, overrides=overrides))
        return {str(table): task for table, task in flow.tasks.items()}

    def of(self, files: Files, table: str = "dws.a", *overrides: str) -> Fingerprint:
        """Return the fingerprint of a task in a project of these files."""
        self.write(files)
        return self.fingerprint(table, *overrides)

    def fingerprint(self, table: str = "dws.a", *overrides: str) -> Fingerprint:
        return Fingerprinter(self.root).fingerprint_of(self.tasks(*overrides)[str(TableName.parse(table))])


def body(*lines: str, before: str = "", options: str = "", signature: str = "orders") -> str:
    """Return a flow file with one task; its body begins at line 6 plus the lines before."""
    text = "".join(f"    {line}\n" for line in lines)
    return f'{before}@rn.task("dws.a"{options})\ndef a({signature}):\n{text}'
