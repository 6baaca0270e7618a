"""Read what a plan that skips everything needs from a lake in SQLite, with `sqlite3` alone.

SQLAlchemy takes as long to import as PySpark, and a run in which nothing changed needs no more than four SELECTs.
Anything unusual returns None: the caller then opens the lake with SQLAlchemy, which reports what is wrong.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from runnel.lake.catalog.schema_revisions import REVISIONS
from runnel.lake.flow_state.inbox_level import InboxLevel
from runnel.lake.flow_state.ingest_position import COLUMNS, STATE_PATH, ProcessedFile, parse_processed_files
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName

_SQLITE_PREFIX = "sqlite:///"
_BATCH_SIZE = 500
_COLUMNS = ", ".join(COLUMNS)
_FILES_QUERY = f"""
select {_COLUMNS} from runnel_ingested i
where line = ?1 and table_name = ?2 and path {{}} '{STATE_PATH}' and seq <= ?3 and seq = (
  select max(seq) from runnel_ingested where line = ?1 and table_name = ?2 and path = i.path and seq <= ?3)
"""
# The newest state by an index look-up, and files from the two path ranges around it: a stream writes very many states.
_POSITION_QUERIES = (
    f"select {_COLUMNS} from runnel_ingested"
    f" where line = ?1 and table_name = ?2 and path = '{STATE_PATH}' and seq <= ?3 order by seq desc limit 1",
    _FILES_QUERY.format("<"),
    _FILES_QUERY.format(">"),
)


class SqliteBranchReader:
    """Reads one state of a branch, in one read transaction."""

    def __init__(
        self, connection: sqlite3.Connection, line: str, seq: int, commit: str, heads: dict[str, TableVersion]
    ) -> None:
        self.commit = commit
        self.heads = {TableName.parse_unchecked(name): head for name, head in heads.items()}
        self._connection = connection
        self._line = line
        self._seq = seq

    @classmethod
    def open(cls, catalog: str, warehouse: str, branch: str) -> "SqliteBranchReader | None":
        """Open the newest state of a branch; None if the lake must be opened with SQLAlchemy."""
        path = catalog.removeprefix(_SQLITE_PREFIX)
        if path == catalog or "?" in path or not Path(path).is_file():
            return None
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            connection.execute("begin")
            reader = cls._read_branch(connection, warehouse, branch)
        except sqlite3.Error:
            reader = None
        if reader is None:
            connection.close()
        return reader

    @classmethod
    def _read_branch(cls, connection: sqlite3.Connection, warehouse: str, branch: str) -> "SqliteBranchReader | None":
        lake_rows = connection.execute("select version_num, warehouse from runnel_schema, runnel_lake").fetchall()
        if lake_rows != [(REVISIONS[-1], warehouse)]:
            return None
        head_row = connection.execute(
            "select b.line, c.seq, c.id from runnel_branches b join runnel_commits c on c.id = b.head"
            " where b.name = ? and c.expired_at is null",
            (branch,),
        ).fetchone()
        head_rows = connection.execute(
            "select table_name, location, content from runnel_heads where branch = ?", (branch,)
        )
        heads = {name: TableVersion(location, content) for name, location, content in head_rows}
        catalog_rows = connection.execute(
            "select table_namespace || '.' || table_name, metadata_location from iceberg_tables"
            " where catalog_name = ? and (iceberg_type = 'TABLE' or iceberg_type is null)",
            (branch,),
        )
        # If another engine changed the branch, its changes must be adopted first.
        if head_row is None or dict(catalog_rows) != {name: head.location for name, head in heads.items()}:
            return None
        line, seq, commit = head_row
        return cls(connection, line, seq, commit, heads)

    def read_results(self, keys: Iterable[tuple[TableName, str]]) -> dict[tuple[TableName, str], TaskResult]:
        """Return the stored results for these keys, without the fields that only a reuse needs."""
        requested = list(keys)
        results = {}
        for start in range(0, len(requested), _BATCH_SIZE):
            batch = requested[start : start + _BATCH_SIZE]
            rows = self._connection.execute(
                "select table_name, key, location, content, run, branch, made_at, quarantine_location,"
                " quarantine_content from runnel_results"
                f" where (table_name, key) in (values {', '.join(['(?, ?)'] * len(batch))})",
                [value for table, key in batch for value in (str(table), key)],
            )
            for name, key, location, content, run, branch, made_at, *quarantine_columns in rows:
                table, head = TableName.parse_unchecked(name), TableVersion(location, content)
                quarantine = TableVersion(*quarantine_columns) if quarantine_columns[0] else None
                result = TaskResult(table, key, head, {}, {}, run, branch, made_at, quarantine=quarantine)
                results[table, key] = result
        return results

    def read_processed_files(self, table: TableName) -> dict[str, ProcessedFile]:
        """Return the files of its source that a table has, by path."""
        return {
            path: processed_file
            for path, processed_file in self.read_position(table).items()
            if not processed_file.is_removed
        }

    def read_position(self, table: TableName) -> dict[str, ProcessedFile]:
        """Return every file that was ever read for a table, by path, including removed ones."""
        if table not in self.heads:
            return {}
        files_by_path: dict[str, ProcessedFile] = {}
        line: str | None = self._line
        seq = self._seq
        while line is not None:
            rows = (
                row for query in _POSITION_QUERIES for row in self._connection.execute(query, (line, str(table), seq))
            )
            for processed_file in parse_processed_files(rows):
                files_by_path.setdefault(processed_file.path, processed_file)
            line, seq = self._connection.execute(
                "select from_line, from_seq from runnel_lines where id = ?", (line,)
            ).fetchone()
        return files_by_path

    def read_level(self, table: TableName) -> InboxLevel:
        """Return the level of a source's inbox."""
        query = "select last, gone from runnel_inboxes where source = ?"
        row = self._connection.execute(query, (str(table),)).fetchone()
        return InboxLevel(*row) if row is not None else InboxLevel()

    def read_delivered_contents(self) -> dict[str, str | None]:
        """Return the content of each sink's table when it was last delivered."""
        rows = self._connection.execute("select sink, content from runnel_deliveries where delivered is not null")
        return dict(rows.fetchall())

    def close(self) -> None:
        """End the transaction."""
        self._connection.close()


def may_have_workers(catalog: str) -> bool:
    """Return whether the lake may have workers; only a lake in SQLite can tell quickly that it has none."""
    path = catalog.removeprefix(_SQLITE_PREFIX)
    if path == catalog or "?" in path:
        return True
    if not Path(path).is_file():
        return False
    try:
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            return connection.execute("select 1 from runnel_workers where kind = 'worker'").fetchone() is not None
    except sqlite3.Error:
        return False  # for example an older lake: it is migrated before anything is queued
