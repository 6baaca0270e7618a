"""Cache the loaded flow of a project, and reload it if its files change. Active runs keep the code they began with."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.client.lake import Lake
from runnel.declare.loading.loader import find_flow_files
from runnel.declare.settings import SETTINGS_FILE, load_settings
from runnel.project.planning.plan_project import load_project_flow
from runnel.spark.session import running_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.declare.model.flow import Flow

FileStamps = tuple[tuple[str, int, int], ...]


class FlowCache:
    """The loaded flows of one project, by parameter overrides. Thread-safe.

    Loading imports the user's files, so only one thread loads at a time.
    """

    def __init__(self, lake: Lake, environ: "Mapping[str, str]", env: str | None = None) -> None:
        self._lake = lake
        self._environ = environ
        self._env = env
        self._lock = threading.Lock()
        self._loaded: dict[tuple[str, ...], tuple[FileStamps, Lake, Flow]] = {}

    def get(self, overrides: "Sequence[str]" = ()) -> "tuple[Lake, Flow]":
        """Return the lake and the flow as the project's files declare them now; raise all mistakes of the project.

        `overrides` are values of parameters, as `--set` gives them.
        """
        key = tuple(overrides)
        with self._lock:
            loaded = self._loaded.get(key)
            if loaded is not None and loaded[0] == self._stamp_files(loaded[2]):
                return self._share_spark(loaded[1]), loaded[2]
            lake = self._share_spark(self._open_lake(key))
            flow = load_project_flow(lake)
            if len(self._loaded) > 20:
                self._loaded.clear()
            self._loaded[key] = (self._stamp_files(flow), lake, flow)
            return lake, flow

    def _share_spark(self, lake: Lake) -> Lake:
        """Let a lake use the running Spark session, or drop its session if that has ended."""
        session = self._lake.spark_provider.session
        if session is not None and session is running_session():
            lake.spark_provider.replace(session)
        elif lake is not self._lake:
            lake.spark_provider.drop()
        return lake

    def _open_lake(self, overrides: tuple[str, ...]) -> Lake:
        """Return a lake with newly loaded settings that shares the connections. The lake's location never changes."""
        current_settings = self._lake.settings
        new_settings = load_settings(current_settings.root, env=self._env, environ=self._environ, overrides=overrides)
        new_settings = replace(
            new_settings,
            catalog=current_settings.catalog,
            warehouse=current_settings.warehouse,
            storage=current_settings.storage,
        )
        new_settings = replace(new_settings, master=current_settings.master, conf=current_settings.conf)
        return Lake(new_settings, store=self._lake.store)

    def _stamp_files(self, flow: "Flow") -> FileStamps:
        """Return path, modification time and size of the project's files, to detect changes."""
        root = self._lake.settings.root
        settings_files = [root / SETTINGS_FILE, *([root / f"runnel.{self._env}.toml"] if self._env else [])]
        paths = {*map(str, find_flow_files(root)), *flow.files, *map(str, settings_files)}
        return tuple((path, *_stat_file(Path(path))) for path in sorted(paths))


def _stat_file(path: Path) -> tuple[int, int]:
    try:
        file_status = path.stat()
    except OSError:
        return 0, -1
    return file_status.st_mtime_ns, file_status.st_size
