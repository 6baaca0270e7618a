"""Read the versions of what a run uses: Python, Spark, the lake's libraries, and what flow files import."""

import ast
import platform
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import metadata

from runnel.spark.jvm.jars import LAKE_JARS

_ALWAYS = ("runnel", "pyspark", "pyiceberg")
_RUNTIME = "iceberg-spark-runtime"


def read_package_versions(trees: Iterable[ast.Module], project_modules: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions by package name. `project_modules` are the project's own modules, which are left out."""
    names = {name for tree in trees for name in _find_imported_modules(tree)}
    return {
        **_read_fixed_versions(),
        **_read_versions(frozenset(names - set(project_modules) - set(_ALWAYS) - sys.stdlib_module_names)),
    }


@lru_cache(maxsize=1)
def _read_fixed_versions() -> dict[str, str]:
    runtime = next(jar.version for jar in LAKE_JARS if jar.name.startswith(_RUNTIME))
    versions = {name: version for name in _ALWAYS if (version := _read_version(name))}
    return {"python": platform.python_version(), **versions, _RUNTIME: runtime}


@lru_cache(maxsize=32)
def _read_versions(names: frozenset[str]) -> dict[str, str]:
    """Return the versions of the packages that provide modules; most have the same name as the module."""
    versions = {name: _read_version(name) for name in sorted(names)}
    if None in versions.values():
        owners = metadata.packages_distributions()  # reads every installed package, so it comes last
        for name in [name for name, version in versions.items() if version is None]:
            del versions[name]
            versions.update({owner: _read_version(owner) for owner in owners.get(name, ())})
    return {name: version for name, version in sorted(versions.items()) if version}


def _read_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _find_imported_modules(tree: ast.Module) -> set[str]:
    r"""Return the top-level names of the modules that a file imports, at any level.

    >>> sorted(_find_imported_modules(ast.parse("import a.b, c\nfrom d.e import f\nfrom . import g")))
    ['a', 'c', 'd']
    """
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            modules.add(node.module.partition(".")[0])
    return modules
