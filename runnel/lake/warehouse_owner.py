"""Whose warehouse it is: a small file in it names the lake and the catalog that knows the lake's history.

A catalog that knows nothing of a warehouse's files takes all of them for garbage. So no other catalog opens the
warehouse, and files are swept only by the lake that the file names. On local disk the file is read when the lake is
opened, in an object store when the first file is read.
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

from runnel.errors import Broken, Mistake, RunnelError
from runnel.lake.catalog import schema

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database
    from runnel.lake.store import Store

FILE_NAME = "_runnel_lake.json"
_ADOPT = (
    "if this catalog shall own the warehouse from now on: runnel fsck --adopt; "
    "the next gc then deletes every file that this catalog does not know"
)


@dataclass(frozen=True)
class Owner:
    """Who owns a warehouse: the lake's id, and its catalog without user and password.

    `database` tells a PostgreSQL database from a copy of it, where that can be known. `warehouse` is the place that
    the file was written for: in the copy of a folder it names the original.
    """

    lake: str
    catalog: str
    database: str | None
    warehouse: str


@dataclass(frozen=True)
class _Identity:
    """What the catalog database says of itself."""

    lake: str
    database: str | None
    commits: int


def owner_file(warehouse: str) -> str:
    """Return the location of the file that names the owner.

    >>> owner_file("s3://bucket/warehouse")
    's3://bucket/warehouse/_runnel_lake.json'
    """
    return f"{warehouse.rstrip('/')}/{FILE_NAME}"


def is_read_at_opening(warehouse: str) -> bool:
    """Tell whether the owner can be read without the library for object stores."""
    return warehouse.startswith("/")


def refuse_new_lake(store: "Store") -> None:
    """Raise where a catalog that is about to be created would claim a warehouse that has an owner, or has files."""
    owner = read_owner(store)
    if owner is not None and not _is_same_catalog(owner, store.db, None):
        raise _foreign(owner, store)
    is_there = not store.db.is_sqlite or Path(store.db.url.database or "").exists()
    if owner is None and not (is_there and store.db.read(_has_tables)) and _has_files(store):
        raise _unknown_files(store)


def check_owner(store: "Store") -> None:
    """Raise where another lake, or another catalog, owns the warehouse; name this one where nobody does."""
    identity = store.db.read(_identity)
    owner = read_owner(store)
    if owner is None:
        if identity.commits <= 1 and not store.db.read(_has_tables) and _has_files(store):
            raise _unknown_files(store)
        with suppress(OSError):  # who may only read the warehouse can't name its owner, and sweeps nothing
            _write(store, identity)
    elif _is_copied_folder(owner, store, identity):
        with suppress(OSError):  # a relocation ended between its transaction and this
            _write(store, identity)
    elif not _is_ours(owner, store, identity):
        raise _foreign(owner, store, is_copy=owner.lake == identity.lake)


def confirm_owner(store: "Store") -> None:
    """Raise unless the warehouse says that it belongs to this lake and this catalog: asked before files are deleted."""
    check_owner(store)
    if read_owner(store) is None:
        what = f"{owner_file(store.warehouse)}, which says whose the warehouse is, can't be written"
        raise RunnelError("LAKE_OWNER_FILE", what, fix="check who owns the warehouse's folder, then repeat")


def check_new_place(store: "Store") -> None:
    """Raise where the place that a lake was moved to belongs to another lake, or to another catalog of this one."""
    identity, owner = store.db.read(_identity), read_owner(store)
    if owner is None or _is_copied_folder(owner, store, identity) or _is_ours(owner, store, identity):
        return
    raise _foreign(owner, store, is_copy=owner.lake == identity.lake)


def claim(store: "Store") -> None:
    """Make this lake and this catalog the owner of the warehouse, whoever was it before."""
    _write(store, store.db.read(_identity))


def read_owner(store: "Store") -> Owner | None:
    """Return who owns a warehouse, or None where nothing says so."""
    location = owner_file(store.warehouse)
    try:
        if is_read_at_opening(store.warehouse):
            contents = Path(location).read_bytes()
        else:
            with store.io.new_input(location).open() as stream:
                contents = stream.read()
        return Owner(**json.loads(contents))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError) as error:
        what = f"{location}, which says whose the warehouse is, can't be read"
        raise Broken("LAKE_OWNER_FILE", what, fix=f"restore it from a backup; or, {_ADOPT}") from error


def _write(store: "Store", identity: _Identity) -> None:
    owner = Owner(identity.lake, shown_catalog(store.db), identity.database, store.warehouse)
    location, contents = owner_file(store.warehouse), (json.dumps(asdict(owner), indent=2) + "\n").encode()
    if not is_read_at_opening(store.warehouse):
        from runnel.lake.iceberg.file_io import write_bytes

        write_bytes(store.io, location, contents)
        return
    path = Path(location)
    path.parent.mkdir(parents=True, exist_ok=True)
    passing = path.with_name(f".{FILE_NAME}.{uuid.uuid4().hex}")
    with passing.open("wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())
    passing.replace(path)  # others may read it at this moment


def shown_catalog(db: "Database") -> str:
    """Return the address of a catalog, the same for all who use it.

    >>> from runnel.lake.catalog.database import Database
    >>> shown_catalog(Database("postgresql://ada:secret@db.example:5432/lake"))
    'postgresql://db.example:5432/lake'
    """
    if db.is_sqlite:
        return f"sqlite:///{Path(db.url.database or '').absolute()}"
    url = sa.URL.create("postgresql", host=db.url.host, port=db.url.port, database=db.url.database)
    return url.render_as_string()


def _identity(connection: "Connection") -> _Identity:
    row = connection.execute(sa.select(schema.lake.c.uuid, schema.lake.c.seq)).one()
    return _Identity(row.uuid, _database(connection), row.seq)


def _has_tables(connection: "Connection") -> bool:
    name = schema.iceberg_tables.name
    if not sa.inspect(connection).has_table(name):
        return False
    return connection.execute(sa.select(schema.iceberg_tables.c.table_name).limit(1)).first() is not None


def _database(connection: "Connection") -> str | None:
    """Return what no copy of a PostgreSQL database has; None on SQLite, and where the server does not say."""
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


def _is_ours(owner: Owner, store: "Store", identity: _Identity) -> bool:
    return owner.lake == identity.lake and _is_same_catalog(owner, store.db, identity.database)


def _is_copied_folder(owner: Owner, store: "Store", identity: _Identity) -> bool:
    """Tell whether the file came along with a folder of this lake that was moved or copied."""
    return owner.lake == identity.lake and owner.warehouse != store.warehouse


def _is_same_catalog(owner: Owner, db: "Database", database: str | None) -> bool:
    if owner.database is not None and database is not None:
        return owner.database == database
    current = shown_catalog(db)
    if owner.catalog == current:
        return True
    recorded = owner.catalog.removeprefix("sqlite:///")
    with suppress(OSError):
        return db.is_sqlite and recorded != owner.catalog and Path(recorded).samefile(db.url.database or "")
    return False


def _has_files(store: "Store") -> bool:
    """Tell whether a warehouse holds files, besides the catalog database should it be in there."""
    from runnel.lake.iceberg.file_io import listing

    return any(
        not is_catalog(store, found.path) and FILE_NAME not in found.path.rpartition("/")[2]
        for found in listing(store.io, store.warehouse)
    )


def _foreign(owner: Owner, store: "Store", *, is_copy: bool = False) -> Mistake:
    current = shown_catalog(store.db)
    what = f"the warehouse {store.warehouse} belongs to the lake {owner.lake} with the catalog {owner.catalog}, "
    if owner.catalog == current:
        what += "but what is now at that address is another database"
    else:
        what += f"not to the catalog {current}" + (", which is a copy of it" if is_copy else "")
    fix = f"set lake.catalog in runnel.toml to {owner.catalog}, or restore it from a backup; or, {_ADOPT}"
    return Mistake("LAKE_FOREIGN", what, fix=fix)


def _unknown_files(store: "Store") -> Mistake:
    what = f"the warehouse {store.warehouse} holds files, but the catalog {shown_catalog(store.db)} is empty"
    fix = f"check lake.catalog and lake.warehouse in runnel.toml; or, {_ADOPT}"
    return Mistake("LAKE_FOREIGN", what, fix=fix)


def is_catalog(store: "Store", path: str) -> bool:
    """Tell whether a file is the catalog database itself, should someone keep it inside the warehouse."""
    database = store.db.url.database if store.db.is_sqlite else None
    return database is not None and os.path.realpath(path).startswith(os.path.realpath(database))
