"""Parse the URL of a database as users write it. Passwords are never part of its text."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.secret import reveal_if_secret
from runnel.errors import Mistake

DatabaseKind = Literal["postgresql", "mysql", "sqlite"]
_KINDS: dict[str, DatabaseKind] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
_PORTS = {"postgresql": 5432, "mysql": 3306, "sqlite": 0}
_PRODUCT_NAMES = {"postgresql": "PostgreSQL", "mysql": "MySQL", "sqlite": "SQLite"}


@dataclass(frozen=True)
class DatabaseAddress:
    """Where a database is. For SQLite `database` is the path of its file."""

    kind: DatabaseKind
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
    def product_name(self) -> str:
        """Return the product's name for messages, such as PostgreSQL."""
        return _PRODUCT_NAMES[self.kind]

    def hide_password(self, text: str) -> str:
        """Return text without the password, in case a driver repeated it."""
        return text.replace(self.password, "***") if self.password else text


def parse_address(origin: Jdbc, root: Path, at: str) -> DatabaseAddress:
    """Return the address of a declared database; a relative SQLite path is below `root`."""
    text = reveal_if_secret(origin.url, at) or ""
    parts = urlsplit(text.strip().removeprefix("jdbc:"))
    kind = _KINDS.get(parts.scheme.lower())
    if kind is None:
        fix = "start it with postgresql://, mysql://, mariadb:// or sqlite:///"
        raise Mistake("SOURCE_DATABASE_URL", "the url names no database that Runnel supports", at=at, fix=fix)
    if kind == "sqlite":
        return DatabaseAddress(kind, "", 0, str(_sqlite_path(parts.netloc + parts.path, root)))
    try:
        port = parts.port or _PORTS[kind]
    except ValueError:
        what = "the port in the url is not a number up to 65535"
        raise Mistake("SOURCE_DATABASE_URL", what, at=at, fix="write postgresql://host:5432/database") from None
    options = dict(parse_qsl(parts.query))
    user = reveal_if_secret(origin.user, at) or options.pop("user", None) or _decode_part(parts.username)
    password = reveal_if_secret(origin.password, at) or options.pop("password", None) or _decode_part(parts.password)
    database = unquote(parts.path.lstrip("/"))
    return DatabaseAddress(kind, parts.hostname or "localhost", port, database, user, password, tuple(options.items()))


def _decode_part(text: str | None) -> str | None:
    return unquote(text) if text is not None else None


def _sqlite_path(path: str, root: Path) -> Path:
    """Return the file that a url names: `sqlite:///data/shop.db` below the project, `sqlite:////abs/shop.db` not."""
    return root / unquote(path.removeprefix("/"))
