"""Ship Python code to the import path of executors: Runnel itself as a folder, the code of a project as a zip file.

Before each task, Spark lets Python read the directory of each zip file again, once for each package that was imported
from it: 0.15 s for Runnel as a zip file.
"""

import io
import threading
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.spark.jvm.command_line import is_local
from runnel.spark.per_driver_cache import PerDriverCache

if TYPE_CHECKING:
    from pyspark import SparkContext

_RUNNEL_ZIP = "runnel-package.zip"
_RUNNEL_FOLDER = "runnel-package"  # into which each executor unpacks it
_CODE_VARIABLE = "runnel_code_id"  # in the environment of Python workers, for nobody to set
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)  # equal files make equal archives
_guard = threading.Lock()
_shipped_names: PerDriverCache[set[str]] = PerDriverCache(lambda _: set())


def ship_runnel(context: "SparkContext", folder: Path) -> None:
    """Let executors import this Runnel, whatever version is installed there. Writes an archive into `folder`."""
    package = Path(__file__).parent.parent.parent
    files = {f"runnel/{path.relative_to(package).as_posix()}": path.read_bytes() for path in _list_modules(package)}
    archive = folder / _RUNNEL_ZIP
    archive.write_bytes(build_archive(files))
    context.addArchive(f"{archive}#{_RUNNEL_FOLDER}")
    context._python_includes = [*(context._python_includes or ()), _RUNNEL_FOLDER]


def ship_project(context: "SparkContext", code_id: str, files: Mapping[str, bytes]) -> None:
    """Let the functions of tasks import modules of the project on the executors of a cluster.

    Only the newest shipped code is on their import path, and Python workers that imported other code are not used
    again: Spark keeps workers apart by their environment.
    """
    if is_local(context.master or ""):
        return
    with _guard:
        if context.environment.get(_CODE_VARIABLE) == code_id:
            return
        name = f"project-{code_id}.zip"
        shipped_names = _shipped_names.get(context)
        if name not in shipped_names:  # Spark refuses a second file of the same name
            archive = Path(temp_dirs.create("code")) / name
            archive.write_bytes(build_archive({path: files[path] for path in files if path.endswith((".py", ".sql"))}))
            context.addPyFile(str(archive))
            shipped_names.add(name)
        others = [other for other in context._python_includes or () if not other.startswith("project-")]
        context._python_includes = [*others, name]
        context.environment[_CODE_VARIABLE] = code_id


def build_archive(files: Mapping[str, bytes]) -> bytes:
    """Return a zip file with these files and an entry for each folder: Python needs it to import from folders.

    >>> sorted(zipfile.ZipFile(io.BytesIO(build_archive({"flows/a/b.py": b""}))).namelist())
    ['flows/', 'flows/a/', 'flows/a/b.py']
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in sorted({str(parent) for name in files for parent in Path(name).parents} - {"."}):
            archive.writestr(zipfile.ZipInfo(f"{folder}/", _FIXED_TIME), b"")
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _FIXED_TIME), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _list_modules(package: Path) -> Iterable[Path]:
    return (path for path in sorted(package.rglob("*.py")) if "__pycache__" not in path.parts)
