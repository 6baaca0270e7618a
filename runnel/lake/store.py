"""Open a lake: its catalog database, the files of its warehouse, and the author of changes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake, did_you_mean
from runnel.lake.author import default_author
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.migrate import migrate_catalog
from runnel.lake.history.adopt import adopt_outside_changes, find_outside_changes
from runnel.lake.history.branches import find_branch_at, read_head_state
from runnel.lake.history.commits import Commit, LakeState, find_version, read_state
from runnel.lake.history.refs import check_retained, resolve_ref
from runnel.model.table_version import TableVersion
from runnel.names import TableName

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from runnel.lake.warehouse_files import WarehouseFiles


class Store:
    """A handle on one lake. Heavy modules are imported on first use, so that `log` and `branch` stay fast."""

    def __init__(self, db: Database, warehouse: str, author: str, storage: dict[str, str] | None = None) -> None:
        self.db = db
        self.warehouse = warehouse
        self.author = author
        self.storage = storage or {}
        self._io: FileIO | None = None
        self._is_owner_unchecked = False  # True for an object store until its first file is read

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

        `moved` allows opening a lake whose folder is not where its metadata says, in order to repair it. `adopt` makes
        this catalog the owner of the warehouse; otherwise a warehouse with another owner is refused.
        """
        from runnel.lake import warehouse_owner

        store = cls(Database(catalog), warehouse, author or default_author(), storage)
        migrate_catalog(
            store.db,
            warehouse,
            store.author,
            check_new_lake=None if adopt else lambda: warehouse_owner.refuse_new_lake(store),
        )
        if moved:
            return store
        store.check_location()
        if adopt:
            warehouse_owner.claim_warehouse(store)
        elif warehouse_owner.is_local_warehouse(warehouse):
            warehouse_owner.check_owner(store)
        else:
            store._is_owner_unchecked = True
        return store

    @property
    def io(self) -> "FileIO":
        """Return the reader and writer of the warehouse's files."""
        if self._io is None:
            from runnel.lake.iceberg.file_io import open_file_io

            self._io = open_file_io(self.warehouse, self.storage)
        if self._is_owner_unchecked:
            self._is_owner_unchecked = False
            self._check_owner()
        return self._io

    @property
    def files(self) -> "WarehouseFiles":
        """Return the access to the warehouse's files that can be pickled, for work on other machines."""
        from runnel.lake.warehouse_files import WarehouseFiles

        return WarehouseFiles(self.warehouse, self.storage)

    def _check_owner(self) -> None:
        from runnel.lake.warehouse_owner import check_owner

        try:
            check_owner(self)
        except BaseException:
            self._is_owner_unchecked = True
            raise

    def read_recorded_warehouse(self) -> str:
        """Return the warehouse location recorded in the catalog."""
        query = sa.select(schema.lake.c.warehouse)
        return str(self.db.read(lambda connection: connection.execute(query).scalar_one()))

    def check_location(self) -> None:
        """Raise if the project's folder was moved: Iceberg's paths are absolute."""
        recorded = self.read_recorded_warehouse()
        if recorded != self.warehouse:
            raise Mistake(
                "LAKE_MOVED",
                f"this lake's files were written for {recorded}, but it is now at {self.warehouse}",
                fix="run `runnel fsck --relocate` to update its metadata, or move the folder back",
            )

    def commit(self, ref: str = "main") -> Commit:
        """Return the commit that a ref names, after adopting changes of other engines to its branch."""
        branch_name = ref.split("@")[0].split("~")[0]

        def resolve_unless_changed(connection: Connection) -> Commit | None:
            query = sa.select(schema.branches.c.name).where(schema.branches.c.name == branch_name)
            if connection.execute(query).first() and find_outside_changes(connection, branch_name):
                return None
            return resolve_ref(connection, ref)

        resolved_commit = self.db.read(resolve_unless_changed)
        if resolved_commit is None:
            adopt_outside_changes(self.db, branch_name)
            resolved_commit = self.db.read(lambda connection: resolve_ref(connection, ref))
        return resolved_commit

    def state(self, ref: str | Commit = "main") -> LakeState:
        """Return every table at a ref, all from one commit."""
        commit = check_retained(self.commit(ref) if isinstance(ref, str) else ref)

        def work(connection: Connection) -> LakeState:
            # The head of a branch is stored; any other state is looked up in the history.
            branch_name = find_branch_at(connection, commit)
            return read_head_state(connection, branch_name) if branch_name else read_state(connection, commit)

        return dict(sorted(self.db.read(work).items()))

    def versions(self, commit: Commit, tables: Iterable[TableName]) -> LakeState:
        """Return some tables at a commit; for a missing table raise an error that names the closest one."""
        check_retained(commit)
        requested_tables = list(tables)

        def work(connection: Connection) -> dict[TableName, TableVersion | None]:
            branch_name = find_branch_at(connection, commit)
            if branch_name is None:
                return {table: find_version(connection, commit, table) for table in requested_tables}
            head_versions = read_head_state(connection, branch_name, requested_tables)
            return {table: head_versions.get(table) for table in requested_tables}

        versions_by_table = self.db.read(work)
        for table, version in versions_by_table.items():
            if version is None:
                raise self.unknown_table_error(table, commit)
        return {table: version for table, version in versions_by_table.items() if version}

    def unknown_table_error(self, table: TableName, commit: Commit) -> Mistake:
        """Return the error for a table that a commit does not have."""
        existing_names = [str(name) for name in self.state(commit)]
        return Mistake(
            "TABLE_UNKNOWN",
            f"there is no table `{table}` on branch `{commit.branch}` at {commit.id[:8]}"
            + did_you_mean(str(table), existing_names),
            fix="`runnel tables` lists them",
        )

    def close(self) -> None:
        """Close the lake's connections."""
        self.db.close()
