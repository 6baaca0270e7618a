"""Load a project: import its flow files, collect their declarations and mistakes, and link them into a flow.

Runs only the user's files: no Spark, unless a file needs it and the caller passes in how to start it.
"""

import linecache
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path

from runnel.declare.loading import import_errors, sql_task
from runnel.declare.loading.linker import link_flow
from runnel.declare.loading.module_importer import FLOWS, ProjectModules, project_imports
from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.declare.model.flow import Flow
from runnel.declare.model.source_location import SourceLocation
from runnel.declare.registry import Registry, SchemaSuggester, collect_declarations
from runnel.declare.settings import Settings
from runnel.errors import Mistake

_TABLE = re.compile(r"[\"']([a-z][a-z0-9_]*\.[a-z][a-z0-9_]*)[\"']", re.ASCII)


def load_flow(
    settings: Settings,
    start_spark: Callable[[], object] | None = None,
    suggest_schema: SchemaSuggester | None = None,
) -> Flow:
    """Return everything that a project declares, or raise all its mistakes at once.

    `start_spark` is called once, and only if a flow file needs a session while it is imported; `suggest_schema` only
    for files that need a schema and have none.
    """
    root = settings.root
    files = find_flow_files(root)
    with (
        collect_declarations(str(root), suggest_schema) as registry,
        project_imports(root) as modules,
        redirect_stdout(sys.stderr),
    ):
        project_load = _ProjectLoad(root, registry, modules, start_spark)
        for file in files:
            project_load.read_file(file)
    flow, mistakes = link_flow(
        registry, root, settings.params, settings.param_origins, is_complete=not project_load.has_failed_file
    )
    all_mistakes = [*registry.mistakes, *mistakes]
    if not all_mistakes and not flow.tasks and not flow.sources:
        all_mistakes = [_describe_no_flows(files)]
    if all_mistakes:
        raise ProjectMistakes(all_mistakes)
    return replace(flow, started_spark=project_load.started_spark, files=tuple(modules.loaded))


def find_flow_files(root: Path) -> list[Path]:
    """Return the flow files of a project, sorted; skip names that start with a dot."""
    folder = root / FLOWS
    files = [path for path in folder.rglob("*") if path.suffix in (".py", ".sql") and path.is_file()]
    return sorted(path for path in files if not any(part[0] == "." for part in path.relative_to(folder).parts))


class _ProjectLoad:
    """The state of loading one project."""

    def __init__(
        self, root: Path, registry: Registry, modules: ProjectModules, start_spark: Callable[[], object] | None
    ) -> None:
        self.root = root
        self.registry = registry
        self.modules = modules
        self.has_failed_file = False
        self.started_spark: SourceLocation | None = None
        self._start_spark = start_spark

    def read_file(self, file: Path) -> None:
        """Import a flow file and collect its declarations; record a failure."""
        if file.suffix == ".sql":
            self._read_sql(file)
            return
        linecache.checkcache(str(file))
        registry_position, loaded_before = self.registry.save_position(), list(self.modules.loaded)
        try:
            self.modules.load(file)
        except BaseException as error:
            if (
                self._start_spark is None
                or self.started_spark is not None
                or not import_errors.is_missing_session(error)
            ):
                self._record_failure(error, file)
                return
            self.started_spark = import_errors.find_project_line(error, str(self.root)) or SourceLocation(str(file), 1)
            self._start_spark()
            self.registry.rewind(registry_position)
            self.modules.forget(loaded_before)
            self.read_file(file)

    def _read_sql(self, file: Path) -> None:
        name = file.relative_to(self.root).as_posix()
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (UnicodeDecodeError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            what, fix = f"{name} can't be read: {reason}", "save it as UTF-8 text that you may read"
            self.registry.reject("DECLARE_IMPORT", what, at=SourceLocation(name, 1), fix=fix)
            return
        sql_task.declare(self.registry, name, text)

    def _record_failure(self, error: BaseException, file: Path) -> None:
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            raise error
        self.has_failed_file = True
        self.registry.report_mistake(import_errors.to_mistake(error, str(file), str(self.root)))
        # Reading a table that the rest of a broken file may declare is no mistake.
        with suppress(OSError):
            for name in _TABLE.findall(file.read_text(encoding="utf-8", errors="replace")):
                self.registry.claim(name)


def _describe_no_flows(files: list[Path]) -> Mistake:
    what = "no source and no task is declared in" if files else "there are no flow files (.py, .sql) in"
    fix = 'declare one, such as rn.source("ods.orders", rn.manual()); `runnel init DIR` makes a project with examples'
    return Mistake("DECLARE_NO_FLOWS", f"{what} {FLOWS}/", fix=fix)
