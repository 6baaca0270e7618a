"""A glance at a lake in SQLite: what a plan that skips everything asks, answered by `sqlite3` alone.

SQLAlchemy takes as long to import as PySpark, and a run in which nothing changed needs no more than four SELECTs.
Whatever is out of the ordinary gives None: then the lake is opened in full, which says what is wrong.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from runnel.lake.catalog.schema_revisions import REVISIONS
from runnel.lake.flow_state.inbox_level import Level
from runnel.lake.flow_state.ingest_position import COLUMNS, STATE, Seen, stored
from runnel.names import TableName
from runnel.plan.facts import Head, Result

_PREFIX = "sqlite:///"
_AT_ONCE = 500
_COLUMNS = ", ".join(COLUMNS)
_FILES = f"""
select {_COLUMNS} from runnel_ingested i
where line = ?1 and table_name = ?2 and path {{}} '{STATE}' and seq <= ?3 and seq = (
  select max(seq) from runnel_ingested where line = ?1 and table_name = ?2 and path = i.path and seq <= ?3)
"""
# The newest state by the index alone, and the two ranges of it beside: a stream writes very many states.
_POSITION = (
    f"select {_COLUMNS} from runnel_ingested"
    f" where line = ?1 and table_name = ?2 and path = '{STATE}' and seq <= ?3 order by seq desc limit 1",
    _FILES.format("<"),
    _FILES.format(">"),
)


class Glance:
    """One state of a branch, in one reading transaction."""

    def __init__(
        self, connection: sqlite3.Connection, line: str, seq: int, commit: str, heads: dict[str, Head]
    ) -> None:
        self.commit = commit
        self.heads = {TableName.stored(name): head for name, head in heads.items()}
        self._connection = connection
        self._line = line
        self._seq = seq

    @classmethod
    def open(cls, catalog: str, warehouse: str, branch: str) -> "Glance | None":
        """Return the newest state of a branch, or None where it takes more than a glance."""
        path = catalog.removeprefix(_PREFIX)
        if path == catalog or "?" in path or not Path(path).is_file():
            return None
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            connection.execute("begin")
            found = cls._look(connection, warehouse, branch)
        except sqlite3.Error:
            found = None
        if found is None:
            connection.close()
        return found

    @classmethod
    def _look(cls, connection: sqlite3.Connection, warehouse: str, branch: str) -> "Glance | None":
        one = connection.execute("select version_num, warehouse from runnel_schema, runnel_lake").fetchall()
        if one != [(REVISIONS[-1], warehouse)]:
            return None
        at = connection.execute(
            "select b.line, c.seq, c.id from runnel_branches b join runnel_commits c on c.id = b.head"
            " where b.name = ? and c.expired_at is null",
            (branch,),
        ).fetchone()
        known = connection.execute("select table_name, location, content from runnel_heads where branch = ?", (branch,))
        heads = {name: Head(location, content) for name, location, content in known}
        actual = connection.execute(
            "select table_namespace || '.' || table_name, metadata_location from iceberg_tables"
            " where catalog_name = ? and (iceberg_type = 'TABLE' or iceberg_type is null)",
            (branch,),
        )
        # Another engine has changed the branch: that is adopted first.
        if at is None or dict(actual) != {name: head.location for name, head in heads.items()}:
            return None
        line, seq, commit = at
        return cls(connection, line, seq, commit, heads)

    def results(self, keys: Iterable[tuple[TableName, str]]) -> dict[tuple[TableName, str], Result]:
        """Return the results that are known for these keys, without what only a reuse needs of them."""
        wanted = list(keys)
        found = {}
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            rows = self._connection.execute(
                "select table_name, key, location, content, run, branch, made_at, quarantine_location,"
                " quarantine_content from runnel_results"
                f" where (table_name, key) in (values {', '.join(['(?, ?)'] * len(some))})",
                [word for table, key in some for word in (str(table), key)],
            )
            for name, key, location, content, run, branch, made_at, *aside in rows:
                table, head = TableName.stored(name), Head(location, content)
                quarantine = Head(*aside) if aside[0] else None
                known = Result(table, key, head, {}, {}, run, branch, made_at, quarantine=quarantine)
                found[table, key] = known
        return found

    def seen(self, table: TableName) -> dict[str, Seen]:
        """Return what a table has of its source, by path."""
        return {path: one for path, one in self.position(table).items() if not one.is_gone}

    def position(self, table: TableName) -> dict[str, Seen]:
        """Return everything that was ever read for a table, by path, also what was removed."""
        if table not in self.heads:
            return {}
        found: dict[str, Seen] = {}
        line: str | None = self._line
        seq = self._seq
        while line is not None:
            rows = (row for query in _POSITION for row in self._connection.execute(query, (line, str(table), seq)))
            for one in stored(rows):
                found.setdefault(one.path, one)
            line, seq = self._connection.execute(
                "select from_line, from_seq from runnel_lines where id = ?", (line,)
            ).fetchone()
        return found

    def level(self, table: TableName) -> Level:
        """Return how far the inbox of a source is."""
        query = "select last, gone from runnel_inboxes where source = ?"
        found = self._connection.execute(query, (str(table),)).fetchone()
        return Level(*found) if found is not None else Level()

    def delivered(self) -> dict[str, str | None]:
        """Return the content of each sink's table when it was last delivered."""
        found = self._connection.execute("select sink, content from runnel_deliveries where delivered is not null")
        return dict(found.fetchall())

    def close(self) -> None:
        """End the transaction."""
        self._connection.close()


def may_have_workers(catalog: str) -> bool:
    """Tell whether workers may be there; only a lake in SQLite can say at a glance that none is."""
    path = catalog.removeprefix(_PREFIX)
    if path == catalog or "?" in path:
        return True
    if not Path(path).is_file():
        return False
    try:
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            return connection.execute("select 1 from runnel_workers where kind = 'worker'").fetchone() is not None
    except sqlite3.Error:
        return False  # an older lake, say: it is brought up to date before anything is queued
