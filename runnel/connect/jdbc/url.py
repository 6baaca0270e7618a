"""The address of a database: a url as users write it, taken apart. Passwords are never part of its text."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.secret import revealed
from runnel.errors import Mistake

Kind = Literal["postgresql", "mysql", "sqlite"]
_KINDS: dict[str, Kind] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
_PORTS = {"postgresql": 5432, "mysql": 3306, "sqlite": 0}
_CALLED = {"postgresql": "PostgreSQL", "mysql": "MySQL", "sqlite": "SQLite"}


@dataclass(frozen=True)
class Address:
    """Where a database is. For SQLite `database` is the path of its file."""

    kind: Kind
    host: str
    port: int
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False, compare=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        """Return it as messages show it, without user and password."""
        if self.kind == "sqlite":
            return f"sqlite:///{self.database}"
        return f"{self.kind}://{self.host}:{self.port}/{self.database}"

    @property
    def called(self) -> str:
        """Return what people call this kind of database."""
        return _CALLED[self.kind]

    def hide(self, text: str) -> str:
        """Return text without the password, should a driver have repeated it."""
        return text.replace(self.password, "***") if self.password else text


def address_of(origin: Jdbc, root: Path, at: str) -> Address:
    """Return where a declared database is; a relative path of SQLite is below `root`."""
    text = revealed(origin.url, at) or ""
    parts = urlsplit(text.strip().removeprefix("jdbc:"))
    kind = _KINDS.get(parts.scheme.lower())
    if kind is None:
        fix = "start it with postgresql://, mysql://, mariadb:// or sqlite:///"
        raise Mistake("SOURCE_DATABASE_URL", "the url names no database that is known", at=at, fix=fix)
    if kind == "sqlite":
        return Address(kind, "", 0, str(_file(parts.netloc + parts.path, root)))
    try:
        port = parts.port or _PORTS[kind]
    except ValueError:
        what = "the port in the url is no number up to 65535"
        raise Mistake("SOURCE_DATABASE_URL", what, at=at, fix="write postgresql://host:5432/database") from None
    options = dict(parse_qsl(parts.query))
    user = revealed(origin.user, at) or options.pop("user", None) or _decoded(parts.username)
    password = revealed(origin.password, at) or options.pop("password", None) or _decoded(parts.password)
    database = unquote(parts.path.lstrip("/"))
    return Address(kind, parts.hostname or "localhost", port, database, user, password, tuple(options.items()))


def _decoded(text: str | None) -> str | None:
    return unquote(text) if text is not None else None


def _file(path: str, root: Path) -> Path:
    """Return the file that a url names: `sqlite:///data/shop.db` below the project, `sqlite:////abs/shop.db` not."""
    return root / unquote(path.removeprefix("/"))
