"""A checkout of Runnel whose commands can be timed: the current folder, or a second work tree at an earlier commit."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers import ROOT, Took, timed

BASE_FOLDER = ROOT / ".work" / "paired-base"
_COMMAND = "import sys; sys.argv[0] = 'runnel'; from runnel.cli.main import main; main()"
_SAME_PACKAGES = "requirements/dev.txt"


@dataclass(frozen=True)
class WorkTree:
    """The root of a checkout and the Python that has its packages."""

    name: str
    root: Path
    commit: str
    python: Path

    def command(self, project: Path, *words: str) -> list[str | Path]:
        """Return the command line of `runnel` as this checkout has it."""
        return [self.python, "-c", _COMMAND, "-C", project, *words]

    @property
    def env(self) -> dict[str, str]:
        """Return the environment in which this checkout is imported, whatever is installed."""
        return {"PYTHONPATH": str(self.root)}

    def runnel(self, project: Path, *words: str) -> Took:
        """Run a command of Runnel to its end."""
        return timed(self.command(project, *words), self.env)

    def script(self, text: str, *words: str | Path) -> Took:
        """Run a few lines of Python that import this checkout."""
        return timed([self.python, "-c", text, *words], self.env, cwd=self.root)


def current_tree() -> WorkTree:
    """Return the checkout that this module belongs to, with what is not committed yet."""
    is_dirty = bool(_git("status", "--porcelain", "--untracked-files=no"))
    commit = _git("rev-parse", "--short", "HEAD") + (" with changes" if is_dirty else "")
    return WorkTree("current", ROOT, commit, Path(sys.executable))


@contextmanager
def base_tree(revision: str) -> Iterator[WorkTree]:
    """Check out a revision beside the current one for as long as the block runs."""
    commit = _git("rev-parse", "--short", "--verify", f"{revision}^{{commit}}")
    _remove()
    BASE_FOLDER.parent.mkdir(exist_ok=True)
    _git("worktree", "add", "--detach", "--quiet", str(BASE_FOLDER), commit)
    try:
        yield WorkTree("base", BASE_FOLDER, commit, _python(BASE_FOLDER))
    finally:
        _remove()


def _python(root: Path) -> Path:
    """Return a Python with the packages that a checkout pins: the current one if both pin the same."""
    if (root / _SAME_PACKAGES).read_bytes() == (ROOT / _SAME_PACKAGES).read_bytes():
        return Path(sys.executable)
    subprocess.run(["make", "--quiet", "setup"], cwd=root, check=True, env={**os.environ, "PYTHON": sys.executable})
    return root / ".venv" / "bin" / "python"


def _remove() -> None:
    if BASE_FOLDER.exists():
        _git("worktree", "remove", "--force", str(BASE_FOLDER))
    _git("worktree", "prune")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()
