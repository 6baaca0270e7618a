"""An object store for tests: S3Proxy on loopback TCP, objects in memory, ended and removed at the end."""

import shutil
import socket
import tempfile
import time
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from runnel.spark.jvm.child_process import Process, spawn
from runnel.spark.jvm.jars import ensure_jars
from runnel.spark.jvm.java_home import find_java
from tests.servers.s3_jars import STORE

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

SECRET = "secret-of-the-store"
_SETTINGS = """
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity=ada
s3proxy.credential={secret}
jclouds.provider=transient-nio2
jclouds.identity=ada
jclouds.credential={secret}
"""
_START_SECONDS = 60


class Store:
    """An object store with one bucket."""

    bucket = "shop-data"

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._home = Path(tempfile.mkdtemp(prefix="runnel-s3-"))
        self._settings = self._home / "s3proxy.conf"
        self._settings.write_text(_SETTINGS.format(port=self.port, secret=SECRET))
        (self._home / "logback.xml").write_text('<configuration><root level="OFF"/></configuration>')
        self._process: Process | None = None

    def __enter__(self) -> "Store":
        java = find_java()
        class_path = ":".join([str(self._home), *map(str, ensure_jars(java, STORE))])
        words = ["-Xmx256m", "-cp", class_path, "org.gaul.s3proxy.Main", "--properties", str(self._settings)]
        self._process = spawn([str(java.executable), *words], log=self._home / "log")
        self._wait()
        self.files.create_dir(self.bucket)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def storage(self) -> dict[str, str]:
        """Return what `[lake.storage]` says to reach it."""
        return {
            "s3.endpoint": f"http://127.0.0.1:{self.port}",
            "s3.access-key-id": "ada",
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }

    @cached_property
    def files(self) -> "S3FileSystem":
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            access_key="ada",
            secret_key=SECRET,
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def put(self, key: str, contents: bytes) -> None:
        """Write an object."""
        with self.files.open_output_stream(f"{self.bucket}/{key}", compression=None) as out:
            out.write(contents)

    def objects(self, prefix: str) -> dict[str, bytes]:
        """Return what is in the objects below a prefix, by the rest of their keys."""
        from pyarrow.fs import FileSelector

        root = f"{self.bucket}/{prefix}"
        found = self.files.get_file_info(FileSelector(root.rstrip("/"), recursive=True, allow_not_found=True))
        return {
            info.path.removeprefix(root): self.files.open_input_stream(info.path, compression=None).read()
            for info in found
            if info.is_file
        }

    def _wait(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"S3Proxy ended: {(self._home / 'log').read_text()[-2000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError("S3Proxy does not answer")
