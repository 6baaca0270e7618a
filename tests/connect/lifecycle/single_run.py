"""One run, for a process that is killed in it. Imports little: such a process imports it first."""

from pathlib import Path

from tests.run.project import Project


def run(root: str) -> None:
    """Run a project."""
    if errors := Project(Path(root)).run().errors:
        raise errors[0]
