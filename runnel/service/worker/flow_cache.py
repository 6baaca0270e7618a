"""The flow of a project as its files are now: loaded anew when they change, so that running runs keep their code."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.client.lake import Lake
from runnel.declare.loading.loader import flow_files
from runnel.declare.settings import FILE, load
from runnel.project.planning.plan_project import flow_of
from runnel.spark.session import running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.declare.model.flow import Flow

Look = tuple[tuple[str, int, int], ...]


class Flows:
    """The loads of one project, for several threads. Loading imports the user's files, so one goes at a time."""

    def __init__(self, lake: Lake, environ: "Mapping[str, str]", env: str | None = None) -> None:
        self._lake = lake
        self._environ = environ
        self._env = env
        self._guard = threading.Lock()
        self._known: dict[tuple[str, ...], tuple[Look, Lake, Flow]] = {}

    def get(self, overrides: "Sequence[str]" = ()) -> "tuple[Lake, Flow]":
        """Return the lake with the settings, and the flow, as the files say now; raises all mistakes of a project.

        `overrides` are values of parameters, as `--set` gives them.
        """
        key = tuple(overrides)
        with self._guard:
            known = self._known.get(key)
            if known is not None and known[0] == self._look(known[2]):
                return self._warm(known[1]), known[2]
            lake = self._warm(self._opened(key))
            flow = flow_of(lake)
            if len(self._known) > 20:
                self._known.clear()
            self._known[key] = (self._look(flow), lake, flow)
            return lake, flow

    def _warm(self, lake: Lake) -> Lake:
        """Let a lake use the Spark that runs, and forget one that has ended."""
        spark = self._lake.__dict__.get("spark")
        if spark is not None and spark is running():
            lake.__dict__["spark"] = spark
        elif lake is not self._lake:
            lake.__dict__.pop("spark", None)
        return lake

    def _opened(self, overrides: tuple[str, ...]) -> Lake:
        """Return a lake with fresh settings that shares the connections and Spark; where the lake is never changes."""
        old = self._lake.settings
        fresh = load(old.root, env=self._env, environ=self._environ, overrides=overrides)
        fresh = replace(fresh, catalog=old.catalog, warehouse=old.warehouse, storage=old.storage)
        lake = Lake(replace(fresh, master=old.master, conf=old.conf))
        lake.__dict__["store"] = self._lake.store
        return lake

    def _look(self, flow: "Flow") -> Look:
        """Return what tells whether a file of the project has changed."""
        root = self._lake.settings.root
        toml = [root / FILE, *([root / f"runnel.{self._env}.toml"] if self._env else [])]
        paths = {*map(str, flow_files(root)), *flow.files, *map(str, toml)}
        return tuple((path, *_stat(Path(path))) for path in sorted(paths))


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, -1
    return found.st_mtime_ns, found.st_size
