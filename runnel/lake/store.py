"""The lake's handle: its catalog database, the files of its warehouse, and who is working on it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake, nearest
from runnel.lake.author import default_author
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.migrate import upgrade
from runnel.lake.history.adopt import adopt, outside_changes
from runnel.lake.history.branches import branch_at, head_state
from runnel.lake.history.commits import Commit, State, Version, state_at, version_at
from runnel.lake.history.refs import readable, resolve
from runnel.names import TableName

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


class Store:
    """One lake. Heavy parts are loaded when they are first needed, so that `log` and `branch` stay quick."""

    def __init__(self, db: Database, warehouse: str, author: str, storage: dict[str, str] | None = None) -> None:
        self.db = db
        self.warehouse = warehouse
        self.author = author
        self.storage = storage or {}
        self._io: FileIO | None = None
        self._is_owner_unchecked = False  # of an object store, which is asked when its first file is

    @classmethod
    def open(
        cls,
        catalog: str,
        warehouse: str,
        *,
        author: str | None = None,
        storage: dict[str, str] | None = None,
        moved: bool = False,
        adopt: bool = False,
    ) -> "Store":
        """Open a lake, creating or migrating its catalog.

        `moved` lets a lake be opened whose folder is not where its metadata says, to mend it. `adopt` makes this
        catalog the owner of the warehouse, whoever was it before; otherwise another's warehouse is refused.
        """
        from runnel.lake import warehouse_owner

        store = cls(Database(catalog), warehouse, author or default_author(), storage)
        upgrade(
            store.db, warehouse, store.author, refuse=None if adopt else lambda: warehouse_owner.refuse_new_lake(store)
        )
        if moved:
            return store
        store.check_place()
        if adopt:
            warehouse_owner.claim(store)
        elif warehouse_owner.is_read_at_opening(warehouse):
            warehouse_owner.check_owner(store)
        else:
            store._is_owner_unchecked = True
        return store

    @property
    def io(self) -> "FileIO":
        """Return the reader and writer of the warehouse's files."""
        if self._io is None:
            from runnel.lake.iceberg.file_io import file_io

            self._io = file_io(self.warehouse, self.storage)
        if self._is_owner_unchecked:
            self._is_owner_unchecked = False
            self._check_owner()
        return self._io

    def _check_owner(self) -> None:
        from runnel.lake.warehouse_owner import check_owner

        try:
            check_owner(self)
        except BaseException:
            self._is_owner_unchecked = True
            raise

    def recorded_warehouse(self) -> str:
        """Return where the lake's metadata says that its files are."""
        query = sa.select(schema.lake.c.warehouse)
        return str(self.db.read(lambda connection: connection.execute(query).scalar_one()))

    def check_place(self) -> None:
        """Raise where the project's folder was moved: Iceberg's paths are absolute."""
        recorded = self.recorded_warehouse()
        if recorded != self.warehouse:
            raise Mistake(
                "LAKE_MOVED",
                f"this lake's files were written for {recorded}, but it is now at {self.warehouse}",
                fix="run `runnel fsck --relocate` to mend its metadata, or move the folder back",
            )

    def commit(self, ref: str = "main") -> Commit:
        """Return the commit that a ref names, having adopted what other engines did to its branch."""
        name = ref.split("@")[0].split("~")[0]

        def look(connection: Connection) -> Commit | None:
            query = sa.select(schema.branches.c.name).where(schema.branches.c.name == name)
            if connection.execute(query).first() and outside_changes(connection, name):
                return None
            return resolve(connection, ref)

        found = self.db.read(look)
        if found is None:
            adopt(self.db, name)
            found = self.db.read(lambda connection: resolve(connection, ref))
        return found

    def state(self, ref: str | Commit = "main") -> State:
        """Return every table at a ref, all from one commit."""
        commit = readable(self.commit(ref) if isinstance(ref, str) else ref)

        def work(connection: Connection) -> State:
            # The head of a branch is kept ready; anything else is looked up in the history.
            name = branch_at(connection, commit)
            return head_state(connection, name) if name else state_at(connection, commit)

        return dict(sorted(self.db.read(work).items()))

    def versions(self, commit: Commit, tables: Iterable[TableName]) -> State:
        """Return some tables at a commit, or raise with the nearest name for one that it does not have."""
        readable(commit)
        wanted = list(tables)

        def work(connection: Connection) -> dict[TableName, Version | None]:
            name = branch_at(connection, commit)
            if name is None:
                return {table: version_at(connection, commit, table) for table in wanted}
            known = head_state(connection, name, wanted)
            return {table: known.get(table) for table in wanted}

        found = self.db.read(work)
        for table, version in found.items():
            if version is None:
                raise self.unknown(table, commit)
        return {table: version for table, version in found.items() if version}

    def unknown(self, table: TableName, commit: Commit) -> Mistake:
        """Return the error for a table that a commit does not have."""
        known = [str(name) for name in self.state(commit)]
        close = nearest(str(table), known)
        return Mistake(
            "TABLE_UNKNOWN",
            f"there is no table `{table}` on branch `{commit.branch}` at {commit.id[:8]}"
            + (f"; close: `{close}`" if close else ""),
            fix="`runnel tables` lists them",
        )

    def close(self) -> None:
        """Close the lake's connections."""
        self.db.close()
