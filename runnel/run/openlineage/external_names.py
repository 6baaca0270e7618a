"""Names of what is outside the lake, as OpenLineage wants them, so that other tools mean the same by them. Pure."""

from pathlib import Path
from urllib.parse import urlsplit

from runnel.declare.model.endpoints import Changes, Files, Http, Jdbc, Kafka, Manual, Origin
from runnel.declare.model.secret import Secret

_PORTS = {"postgres": 5432, "mysql": 3306}
_SCHEMES = {"postgresql": "postgres", "postgres": "postgres", "mysql": "mysql", "mariadb": "mysql"}


def named(origin: "Origin | Manual", root: Path) -> tuple[tuple[str, str], ...]:
    """Return the namespace and the name of everything that a source reads; passwords are in neither.

    >>> named(Kafka("a:9092,b:9092", ("clicks",)), Path("/p"))
    (('kafka://a:9092', 'clicks'),)
    >>> named(Jdbc("postgresql://ada:pw@db/shop", table="orders"), Path("/p"))
    (('postgres://db:5432', 'shop.public.orders'),)
    >>> named(Files("data/*.csv", "csv"), Path("/p")), named(Files("s3://b/in/*.csv", "csv"), Path("/p"))
    ((('file', '/p/data/*.csv'),), (('s3://b', 'in/*.csv'),))
    """
    if isinstance(origin, Changes):
        return named(origin.origin, root)
    if isinstance(origin, Files):
        return (_file(origin.glob, root),)
    if isinstance(origin, Kafka):
        first = origin.servers.split(",")[0].strip()
        return tuple((f"kafka://{first}", topic) for topic in (origin.topics or (origin.pattern or "",)))
    if isinstance(origin, Jdbc):
        return _database(origin, root)
    if isinstance(origin, Http) and not isinstance(origin.url, Secret):
        found = urlsplit(origin.url)
        return ((f"{found.scheme}://{_host(found.netloc)}", found.path or "/"),)
    return ()


def _file(glob: str, root: Path) -> tuple[str, str]:
    if "://" not in glob:
        return "file", str(root / glob)
    found = urlsplit(glob.replace("?", "%3F"))
    return f"{found.scheme}://{_host(found.netloc)}", found.path.lstrip("/").replace("%3F", "?")


def _database(origin: Jdbc, root: Path) -> tuple[tuple[str, str], ...]:
    if isinstance(origin.url, Secret) or origin.table is None:
        return ()
    found = urlsplit(origin.url.strip().removeprefix("jdbc:"))
    if found.scheme == "sqlite":
        return (
            (
                f"sqlite:{root / found.path.lstrip('/') if not found.path.startswith('//') else found.path[1:]}",
                origin.table,
            ),
        )
    scheme = _SCHEMES.get(found.scheme, found.scheme)
    database = found.path.strip("/")
    table = f"public.{origin.table}" if scheme == "postgres" and "." not in origin.table else origin.table
    return ((f"{scheme}://{found.hostname}:{found.port or _PORTS.get(scheme, 0)}", f"{database}.{table}"),)


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2]
