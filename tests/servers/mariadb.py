"""A real MariaDB server for tests, without root: the installed one, else Debian's package, unpacked into a cache."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pymysql
import pytest

from tests.servers.postgres import _free_port

PACKAGES = ("mariadb-server-core", "libaio1", "liburing2", "libnuma1")
_SETTINGS = ("--no-defaults", "--skip-networking=0", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin")
_TABLES = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
_SECONDS = 30


class Absent(Exception):
    """There is no MariaDB on this machine, and none can be fetched."""


class Server:
    """A MariaDB server on loopback TCP, stopped and removed at the end."""

    def __init__(self) -> None:
        self.port = _free_port()
        self._home = Path(tempfile.mkdtemp(prefix="runnel-maria-"))
        self._usr = _found()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Server":
        share = self._usr / "share" / "mysql"
        scripts = "\n".join((share / name).read_text() for name in _TABLES)
        self._call("--bootstrap", given=f"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n{scripts}")
        socket = self._home / "socket"
        words = [f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={socket}"]
        self._process = subprocess.Popen(
            self._command(*words), env=self._env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"mariadb://root@127.0.0.1:{self.port}"

    def connect(self) -> "pymysql.Connection[pymysql.cursors.Cursor]":
        # To prepare for TLS takes longer than the rest.
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True, ssl_disabled=True)

    def _wait(self) -> None:
        over = time.monotonic() + _SECONDS
        while True:
            try:
                self.connect().close()
                return
            except pymysql.Error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > over:
                    raise RuntimeError("MariaDB does not start") from None
                time.sleep(0.02)

    def _call(self, *words: str, given: str) -> None:
        subprocess.run(
            self._command(*words), input=given.encode(), env=self._env(), check=True, capture_output=True, timeout=60
        )

    def _command(self, *words: str) -> list[str]:
        user = [f"--user={'root' if os.geteuid() == 0 else os.environ.get('USER', 'nobody')}"]
        messages = [f"--lc-messages-dir={self._usr / 'share' / 'mysql'}", f"--datadir={self._home / 'data'}"]
        own = f"--tmpdir={self._home}"  # a server that starts removes what another has in a folder that they share
        (self._home / "data").mkdir(exist_ok=True)
        return [str(self._usr / "sbin" / "mariadbd"), *_SETTINGS, *user, *messages, own, *words]

    def _env(self) -> dict[str, str]:
        libraries = [str(path) for path in (self._usr / "lib").glob("*-linux-gnu")]
        libraries += [str(path) for path in (self._usr.parent / "lib").glob("*-linux-gnu")]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)} if self._usr != Path("/usr") else dict(os.environ)


@contextmanager
def started() -> Iterator[Server]:
    """Have a server, or skip the test where there is none."""
    try:
        made = Server()
    except Absent as absent:
        pytest.skip(str(absent))
    with made:
        yield made


def _found() -> Path:
    """Return the folder `usr` with the server's programs."""
    if Path("/usr/sbin/mariadbd").exists():
        return Path("/usr")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runnel-tests" / "mariadb"
    if not (cache / "usr" / "sbin" / "mariadbd").exists():
        _fetch(cache)
    return cache / "usr"


def _fetch(cache: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise Absent("there is no mariadbd, and no apt-get to fetch it with")
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
        try:
            subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, check=True, capture_output=True, timeout=120)
            for package in Path(folder).glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, f"{folder}/root"], check=True, capture_output=True)
            Path(folder, "root").rename(cache)
        except (subprocess.SubprocessError, OSError) as error:
            if not (cache / "usr" / "sbin" / "mariadbd").exists():
                raise Absent(f"there is no mariadbd, and apt-get download does not work: {error}") from error
