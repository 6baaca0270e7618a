"""Import the modules of a project: flow files and what they import from the project, fresh for each load.

Each file is one module, whether it is imported as `flows.shared` or as `shared`. Its modules are in `sys.modules` only
while the project is loaded: so the next load sees changed code, and functions are pickled by value for Spark's workers,
which may lack the project's files. An import that runs later, inside a task, still finds them.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from runnel.declare.caller_location import is_project_file
from runnel.declare.loading.compiled_files import compile_file

FLOWS = "flows"
_FOREIGN_PACKAGES = frozenset(sys.stdlib_module_names) | {"runnel", "pyspark", "py4j", "__main__"}


class ProjectModules(MetaPathFinder, Loader):
    """The modules of one load. `loaded` are (file, module) in the order in which they were first imported."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.loaded: dict[str, ModuleType] = {}
        self.failed: dict[str, BaseException] = {}
        self._started: set[str] = set()
        self._names: set[str] = set()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Leave this loader out when a module is pickled by value."""
        return object, ()

    def load(self, file: Path) -> None:
        """Import one file of the project, unless it is already imported."""
        name = self._module_name(file)
        spec = ModuleSpec(name, self, origin=str(file))
        module = self.create_module(spec)
        sys.modules.setdefault(name, module)
        self.exec_module(module)

    def forget(self, files_to_keep: Sequence[str]) -> None:
        """Forget every file except `files_to_keep`, so that the others are imported again."""
        for file in [file for file in self.loaded if file not in files_to_keep]:
            module = self.loaded.pop(file)
            self._started.discard(file)
            for name in [name for name in self._names if sys.modules.get(name) is module]:
                del sys.modules[name]
        self.failed.clear()

    def unregister(self) -> None:
        """Remove the project's modules from `sys.modules`."""
        for name in self._names:
            if _is_project_module(sys.modules.get(name)):
                del sys.modules[name]

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of the project, or None for any other module."""
        parent, _, _ = fullname.rpartition(".")
        if fullname.partition(".")[0] in _FOREIGN_PACKAGES or (
            parent and not _is_project_module(sys.modules.get(parent))
        ):
            return None
        self._names.add(fullname)
        file = self.find_file(fullname)
        if file is not None:
            if file.parent.name == FLOWS and not parent and self._is_installed(fullname):
                return None  # flows/requests.py must not replace the library
            spec = ModuleSpec(fullname, self, origin=str(file), is_package=file.name == "__init__.py")
        else:
            folders = [str(folder) for folder in self._candidates(fullname) if folder.is_dir()]
            if not folders or (not parent and self._is_installed(fullname)):
                return None
            spec = ModuleSpec(fullname, self, is_package=True)
            spec.submodule_search_locations = folders
            return spec
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(str(file.parent))
        return spec

    def find_file(self, name: str) -> Path | None:
        """Return the project's file that a module name imports, or None."""
        for path in self._candidates(name):
            for file in (path / "__init__.py", path.with_name(path.name + ".py")):
                if file.is_file():
                    return file
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the single module of a file."""
        if spec.origin is None:
            return ModuleType(spec.name)
        if spec.origin not in self.loaded:
            file = Path(spec.origin)
            module = ModuleType(self._module_name(file))
            module.__file__ = spec.origin
            is_package = file.name == "__init__.py"
            module.__package__ = module.__name__ if is_package else module.__name__.rpartition(".")[0]
            module.__loader__ = self
            if is_package:
                module.__path__ = [str(file.parent)]
            self.loaded[spec.origin] = module
            self._names.add(module.__name__)
            sys.modules.setdefault(module.__name__, module)
        return self.loaded[spec.origin]

    def exec_module(self, module: ModuleType) -> None:
        """Execute a file once; if it failed, raise the same error again."""
        file = module.__file__ if "__file__" in module.__dict__ else None
        if file is None:
            return
        module.__spec__ = ModuleSpec(module.__name__, self, origin=file, is_package="__path__" in module.__dict__)
        if file in self.failed:
            raise self.failed[file]
        if file in self._started:
            return
        self._started.add(file)
        try:
            exec(compile_file(file, Path(file).read_bytes()).code, module.__dict__)
        except BaseException as error:
            self.failed[file] = error
            raise

    def _candidates(self, name: str) -> list[Path]:
        parts = name.split(".")
        return [self.root.joinpath(*parts), self.root.joinpath(FLOWS, *parts)]

    def _module_name(self, file: Path) -> str:
        parts = file.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _is_installed(self, name: str) -> bool:
        spec = PathFinder.find_spec(name)
        return spec is not None and spec.origin is not None and not is_project_file(spec.origin, str(self.root))


@contextmanager
def project_imports(root: Path) -> Iterator[ProjectModules]:
    """Let imports find the modules of the project in `root` while the block runs, starting with none imported."""
    for finder in [finder for finder in sys.meta_path if isinstance(finder, ProjectModules)]:
        finder.unregister()  # modules that a task imported since
        sys.meta_path.remove(finder)
    modules = ProjectModules(root)
    displaced = _displace_modules(modules)
    sys.meta_path.insert(0, modules)
    try:
        yield modules
    finally:
        modules.unregister()
        sys.modules.update(displaced)


def _displace_modules(modules: ProjectModules) -> dict[str, ModuleType]:
    """Remove this project's modules that other code imported from `sys.modules`, and return them."""
    displaced: dict[str, ModuleType] = {}
    root = str(modules.root)
    # There are thousands: test the cheap condition first, and build no list of pairs, which would trigger the GC.
    for name, module in sys.modules.copy().items():
        file = module.__dict__.get("__file__") if isinstance(module, ModuleType) else None
        if not isinstance(file, str) or not file.startswith(root) or name.partition(".")[0] in _FOREIGN_PACKAGES:
            continue
        if is_project_file(file, root) and str(modules.find_file(name)) == file:
            displaced[name] = sys.modules.pop(name)
    return displaced


def _is_project_module(module: ModuleType | None) -> bool:
    return isinstance(module, ModuleType) and isinstance(module.__dict__.get("__loader__"), ProjectModules)
