"""Find the files of the project and their paths relative to its folder, so that the folder can be moved.

Reads the disk only to find files of modules that are not imported.
"""

import os
import sys
from pathlib import Path
from types import ModuleType

NOTEBOOK = "notebook"  # stands for the file of code in notebook cells
_EXCLUDED_FOLDERS = {"site-packages", "dist-packages", ".runnel", "__pypackages__"}
_RUNNEL_FOLDER = str(Path(__file__).parents[2]) + os.sep


class ProjectFiles:
    """The project's own files under `root`, without installed packages and virtual environments."""

    def __init__(self, root: Path) -> None:
        self.root = root
        spellings = dict.fromkeys((str(root.absolute()), str(root.resolve())))
        self.roots = tuple(spelling.rstrip(os.sep) for spelling in spellings)
        self._files: dict[str, str | None] = {}
        self._environments: dict[Path, bool] = {}

    def file(self, filename: str) -> str | None:
        """Return a file's path relative to the root, or None if it is not the project's."""
        if filename not in self._files:
            self._files[filename] = self._relative_to_root(filename)
        return self._files[filename]

    def module_file(self, module: ModuleType) -> str | None:
        """Return the relative path of a module of the project."""
        filename = getattr(module, "__file__", None)
        return self.file(filename) if isinstance(filename, str) else None

    def is_package(self, module: ModuleType) -> bool:
        """Return whether a module is a folder of the project without `__init__.py`."""
        if getattr(module, "__file__", None) is not None:
            return False
        return any(self._path_in_root(str(folder)) is not None for folder in getattr(module, "__path__", ()))

    def path(self, file: str) -> str:
        """Return the full path of a file of the project."""
        return os.path.join(self.roots[0], file)  # noqa: PTH118 - speed: called for every function

    def strip_root(self, text: str) -> str:
        """Remove the path of the project's folder from a text."""
        for root in self.roots:
            if len(root) > 1 and root in text:
                text = text.replace(root, "<root>")
        return text

    def find_module_file(self, name: str, level: int = 0, importing_file: str = "") -> str | None:
        """Return the file of a project module by its name, imported or not, or None if it is not part of the project.

        `level` and `importing_file` are the dots of a relative import and the file that contains it.
        """
        if level:
            parents = Path(importing_file).parents
            return self._find_on_disk(name, parents[level - 1].as_posix()) if level <= len(parents) else None
        module = sys.modules.get(name)
        file = self.module_file(module) if module is not None else None
        folders = ("", "flows", Path(importing_file).parent.as_posix())
        return file or next(filter(None, (self._find_on_disk(name, folder) for folder in folders)), None)

    def _find_on_disk(self, name: str, folder: str) -> str | None:
        base = Path(folder, *name.split("."))
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if self.file(self.path(str(file))) and (self.root / file).is_file():
                return file.as_posix()
        return None

    def _relative_to_root(self, filename: str) -> str | None:
        path_in_root = self._path_in_root(filename)
        if path_in_root is None or filename.startswith(_RUNNEL_FOLDER):
            return None
        parts = Path(path_in_root).parts[:-1]
        if _EXCLUDED_FOLDERS.intersection(parts):
            return None
        folders = (Path(self.roots[0], *parts[: count + 1]) for count in range(len(parts)))
        if any(self._is_environment(folder) for folder in folders):
            return None
        return path_in_root.replace(os.sep, "/")

    def _path_in_root(self, filename: str) -> str | None:
        if filename.startswith("<"):
            return None
        for spelling in (os.path.abspath(filename), os.path.realpath(filename)):  # noqa: PTH100 - links are tried last
            for root in self.roots:
                if spelling.startswith(root + os.sep):
                    return spelling[len(root) + 1 :]
        return None

    def _is_environment(self, folder: Path) -> bool:
        if folder not in self._environments:
            self._environments[folder] = (folder / "pyvenv.cfg").is_file()
        return self._environments[folder]
