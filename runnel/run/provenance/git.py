"""Ask git for the commit of the project's code, and whether files differ from it. Writes nothing."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

_PATIENCE_SECONDS = 5.0


class GitState(TypedDict):
    """What git says about code."""

    commit: str
    dirty: bool


def read_git_state(root: Path, files: Iterable[str]) -> GitState | None:
    """Return the commit of the folder's repository and whether some of the files differ from it.

    None if there is no repository, no commit yet or no git.
    """
    if not any((folder / ".git").exists() for folder in (root.absolute(), *root.absolute().parents)):
        return None
    names = frozenset(files)
    paths = sorted({path.partition("/")[0] if path.startswith("flows/") else path for path in names})
    command = ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=all", "--", *paths]
    try:
        completed = subprocess.run(
            command,
            cwd=root,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _parse_status(completed.stdout, names) if completed.returncode == 0 else None


def _parse_status(text: str, files: frozenset[str]) -> GitState | None:
    r"""Parse the output of `git status`. An untracked file counts as a change if it is one of `files`.

    >>> _parse_status("# branch.oid 1a2b\n# branch.head main\n1 .M N... flows/a.py\n", frozenset())
    {'commit': '1a2b', 'dirty': True}
    >>> _parse_status("# branch.oid 1a2b\n? shop/flows/.env\n", frozenset({"flows/a.py"}))
    {'commit': '1a2b', 'dirty': False}
    """
    lines = text.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "(initial)")
    untracked = [f"/{line[2:]}" for line in lines if line.startswith("? ")]
    is_changed = any(line[:1] not in "#?" for line in lines)
    is_new = any(path.endswith(f"/{file}") for path in untracked for file in files)
    return None if commit == "(initial)" else {"commit": commit, "dirty": is_changed or is_new}
