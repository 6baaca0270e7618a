"""The versions of what a run computes with: Python, Spark, the lake's libraries, and what flow files import."""

import ast
import platform
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import metadata

from runnel.spark.jvm.jars import LAKE

_ALWAYS = ("runnel", "pyspark", "pyiceberg")
_RUNTIME = "iceberg-spark-runtime"


def packages_of(trees: Iterable[ast.Module], ours: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions, by name, of all that counts. `ours` are the project's own modules."""
    names = {name for tree in trees for name in _imported(tree)}
    return {**_fixed(), **_versions(frozenset(names - set(ours) - set(_ALWAYS) - sys.stdlib_module_names))}


@lru_cache(maxsize=1)
def _fixed() -> dict[str, str]:
    runtime = next(jar.version for jar in LAKE if jar.name.startswith(_RUNTIME))
    found = {name: version for name in _ALWAYS if (version := _version(name))}
    return {"python": platform.python_version(), **found, _RUNTIME: runtime}


@lru_cache(maxsize=32)
def _versions(names: frozenset[str]) -> dict[str, str]:
    """Return the versions of the packages that modules come from; of most the name is the same."""
    found = {name: _version(name) for name in sorted(names)}
    if None in found.values():
        owners = metadata.packages_distributions()  # reads about every installed package, so it comes last
        for name in [name for name, version in found.items() if version is None]:
            del found[name]
            found.update({owner: _version(owner) for owner in owners.get(name, ())})
    return {name: version for name, version in sorted(found.items()) if version}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _imported(tree: ast.Module) -> set[str]:
    r"""Return the first parts of the modules that a file imports, wherever it does.

    >>> sorted(_imported(ast.parse("import a.b, c\nfrom d.e import f\nfrom . import g")))
    ['a', 'c', 'd']
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found
