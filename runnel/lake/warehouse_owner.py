"""Record which lake and catalog own a warehouse, in a small file inside the warehouse.

A catalog that does not list a warehouse's files would treat all of them as garbage. So no other catalog may open the
warehouse, and only the owning lake sweeps files. On local disk the owner file is read when the lake is opened, in an
object store when the first file is read.
"""

import json
import os
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from runnel.errors import CorruptData, Mistake, RunnelError
from runnel.lake.catalog import schema

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database
    from runnel.lake.store import Store

FILE_NAME = "_runnel_lake.json"
_ADOPT_HINT = (
    "to make this catalog the owner of the warehouse: runnel fsck --adopt; "
    "the next gc then deletes every file that this catalog does not know"
)


@dataclass(frozen=True)
class WarehouseOwner:
    """The owner of a warehouse: the lake's id, and its catalog's URL without user and password.

    `database` distinguishes a PostgreSQL database from a copy of it, if the server reveals that. `warehouse` is the
    location that the file was written for: in a copied folder it names the original.
    """

    lake: str
    catalog: str
    database: str | None
    warehouse: str


@dataclass(frozen=True)
class _CatalogIdentity:
    """The identity of the catalog database, as recorded in it."""

    lake: str
    database: str | None
    commits: int


def owner_file_location(warehouse: str) -> str:
    """Return the location of the file that names the owner.

    >>> owner_file_location("s3://bucket/warehouse")
    's3://bucket/warehouse/_runnel_lake.json'
    """
    return f"{warehouse.rstrip('/')}/{FILE_NAME}"


def is_local_warehouse(warehouse: str) -> bool:
    """Return whether the owner can be read without the library for object stores."""
    return warehouse.startswith("/")


def refuse_new_lake(store: "Store") -> None:
    """Raise if a catalog that is about to be created would claim a warehouse that has an owner or files."""
    owner = read_owner(store)
    if owner is not None and not _is_same_catalog(owner, store.db, None):
        raise _foreign_owner_error(owner, store)
    catalog_exists = not store.db.is_sqlite or Path(store.db.url.database or "").exists()
    if owner is None and not (catalog_exists and store.db.read(_has_tables)) and _has_files(store):
        raise _unknown_files_error(store)


def check_owner(store: "Store") -> None:
    """Raise if another lake or another catalog owns the warehouse; write the owner file if there is none."""
    identity = store.db.read(_read_identity)
    owner = read_owner(store)
    if owner is None:
        if identity.commits <= 1 and not store.db.read(_has_tables) and _has_files(store):
            raise _unknown_files_error(store)
        with suppress(OSError):  # a user with read access only can't write the owner file, and sweeps nothing
            _write_owner(store, identity)
    elif _is_copied_folder(owner, store, identity):
        with suppress(OSError):  # a relocation ended between its transaction and this
            _write_owner(store, identity)
    elif not _is_owned_by_store(owner, store, identity):
        raise _foreign_owner_error(owner, store, is_copy=owner.lake == identity.lake)


def confirm_owner(store: "Store") -> None:
    """Raise unless the owner file names this lake and this catalog; called before files are deleted."""
    check_owner(store)
    if read_owner(store) is None:
        what = f"{owner_file_location(store.warehouse)}, which records the owner of the warehouse, can't be written"
        raise RunnelError("LAKE_OWNER_FILE", what, fix="check who owns the warehouse's folder, then repeat")


def check_new_location(store: "Store") -> None:
    """Raise if the location that a lake was moved to belongs to another lake, or to another catalog of this lake."""
    identity, owner = store.db.read(_read_identity), read_owner(store)
    if owner is None or _is_copied_folder(owner, store, identity) or _is_owned_by_store(owner, store, identity):
        return
    raise _foreign_owner_error(owner, store, is_copy=owner.lake == identity.lake)


def claim_warehouse(store: "Store") -> None:
    """Make this lake and this catalog the owner of the warehouse, regardless of its previous owner."""
    _write_owner(store, store.db.read(_read_identity))


def read_owner(store: "Store") -> WarehouseOwner | None:
    """Return the owner of a warehouse, or None if it has no owner file."""
    location = owner_file_location(store.warehouse)
    try:
        if is_local_warehouse(store.warehouse):
            contents = Path(location).read_bytes()
        else:
            with store.io.new_input(location).open() as stream:
                contents = stream.read()
        return WarehouseOwner(**json.loads(contents))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError) as error:
        what = f"{location}, which records the owner of the warehouse, can't be read"
        raise CorruptData("LAKE_OWNER_FILE", what, fix=f"restore it from a backup; or, {_ADOPT_HINT}") from error


def _write_owner(store: "Store", identity: _CatalogIdentity) -> None:
    owner = WarehouseOwner(identity.lake, format_catalog_url(store.db), identity.database, store.warehouse)
    location, contents = owner_file_location(store.warehouse), (json.dumps(asdict(owner), indent=2) + "\n").encode()
    if not is_local_warehouse(store.warehouse):
        from runnel.lake.iceberg.file_io import write_bytes

        write_bytes(store.io, location, contents)
        return
    path = Path(location)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary_path = path.with_name(f".{FILE_NAME}.{uuid.uuid4().hex}")
    with temporary_path.open("wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())
    temporary_path.replace(path)  # others may read it at this moment


def format_catalog_url(db: "Database") -> str:
    """Return the URL of a catalog without credentials, the same for all its users.

    >>> from runnel.lake.catalog.database import Database
    >>> format_catalog_url(Database("postgresql://ada:secret@db.example:5432/lake"))
    'postgresql://db.example:5432/lake'
    """
    if db.is_sqlite:
        return f"sqlite:///{Path(db.url.database or '').absolute()}"
    url = sa.URL.create("postgresql", host=db.url.host, port=db.url.port, database=db.url.database)
    return url.render_as_string()


def _read_identity(connection: "Connection") -> _CatalogIdentity:
    row = connection.execute(sa.select(schema.lake.c.uuid, schema.lake.c.seq)).one()
    return _CatalogIdentity(row.uuid, _read_database_id(connection), row.seq)


def _has_tables(connection: "Connection") -> bool:
    name = schema.iceberg_tables.name
    if not sa.inspect(connection).has_table(name):
        return False
    return connection.execute(sa.select(schema.iceberg_tables.c.table_name).limit(1)).first() is not None


def _read_database_id(connection: "Connection") -> str | None:
    """Return an id that no copy of a PostgreSQL database shares; None on SQLite or if the server denies it."""
    if connection.dialect.name == "sqlite":
        return None
    query = sa.text(
        "select system_identifier || '/' || (select oid from pg_database where datname = current_database())"
        " from pg_control_system()"
    )
    try:
        with connection.begin_nested():
            return str(connection.execute(query).scalar_one())
    except DBAPIError:
        return None


def _is_owned_by_store(owner: WarehouseOwner, store: "Store", identity: _CatalogIdentity) -> bool:
    return owner.lake == identity.lake and _is_same_catalog(owner, store.db, identity.database)


def _is_copied_folder(owner: WarehouseOwner, store: "Store", identity: _CatalogIdentity) -> bool:
    """Return whether the owner file belongs to a folder of this lake that was moved or copied."""
    return owner.lake == identity.lake and owner.warehouse != store.warehouse


def _is_same_catalog(owner: WarehouseOwner, db: "Database", database: str | None) -> bool:
    if owner.database is not None and database is not None:
        return owner.database == database
    current_catalog = format_catalog_url(db)
    if owner.catalog == current_catalog:
        return True
    recorded_path = owner.catalog.removeprefix("sqlite:///")
    with suppress(OSError):
        return db.is_sqlite and recorded_path != owner.catalog and Path(recorded_path).samefile(db.url.database or "")
    return False


def _has_files(store: "Store") -> bool:
    """Return whether a warehouse holds files other than the owner file and the catalog database."""
    from runnel.lake.iceberg.file_io import list_files

    return any(
        not is_catalog_file(store, file.path) and FILE_NAME not in file.path.rpartition("/")[2]
        for file in list_files(store.io, store.warehouse)
    )


def _foreign_owner_error(owner: WarehouseOwner, store: "Store", *, is_copy: bool = False) -> Mistake:
    current_catalog = format_catalog_url(store.db)
    what = f"the warehouse {store.warehouse} belongs to the lake {owner.lake} with the catalog {owner.catalog}, "
    if owner.catalog == current_catalog:
        what += "but the database at that address is now a different one"
    else:
        what += f"not to the catalog {current_catalog}" + (", which is a copy of it" if is_copy else "")
    fix = f"set lake.catalog in runnel.toml to {owner.catalog}, or restore it from a backup; or, {_ADOPT_HINT}"
    return Mistake("LAKE_FOREIGN", what, fix=fix)


def _unknown_files_error(store: "Store") -> Mistake:
    what = f"the warehouse {store.warehouse} holds files, but the catalog {format_catalog_url(store.db)} is empty"
    fix = f"check lake.catalog and lake.warehouse in runnel.toml; or, {_ADOPT_HINT}"
    return Mistake("LAKE_FOREIGN", what, fix=fix)


def is_catalog_file(store: "Store", path: str) -> bool:
    """Return whether a file is the catalog database itself, should someone keep it inside the warehouse."""
    database = store.db.url.database if store.db.is_sqlite else None
    return database is not None and os.path.realpath(path).startswith(os.path.realpath(database))
