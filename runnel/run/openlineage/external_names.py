"""Name external sources by the OpenLineage naming conventions, so that other tools recognize them. Pure."""

from pathlib import Path
from urllib.parse import urlsplit

from runnel.declare.model.endpoints import Changes, Files, Http, Jdbc, Kafka, Manual, Origin
from runnel.declare.model.secret import Secret

_PORTS = {"postgres": 5432, "mysql": 3306}
_SCHEMES = {"postgresql": "postgres", "postgres": "postgres", "mysql": "mysql", "mariadb": "mysql"}


def name_origin(origin: "Origin | Manual", root: Path) -> tuple[tuple[str, str], ...]:
    """Return the namespace and the name of everything that a source reads; neither contains passwords.

    >>> name_origin(Kafka("a:9092,b:9092", ("clicks",)), Path("/p"))
    (('kafka://a:9092', 'clicks'),)
    >>> name_origin(Jdbc("postgresql://ada:pw@db/shop", table="orders"), Path("/p"))
    (('postgres://db:5432', 'shop.public.orders'),)
    >>> name_origin(Files("data/*.csv", "csv"), Path("/p"))
    (('file', '/p/data/*.csv'),)
    >>> name_origin(Files("s3://b/in/*.csv", "csv"), Path("/p"))
    (('s3://b', 'in/*.csv'),)
    """
    if isinstance(origin, Changes):
        return name_origin(origin.origin, root)
    if isinstance(origin, Files):
        return (_name_files(origin.glob, root),)
    if isinstance(origin, Kafka):
        first_server = origin.servers.split(",")[0].strip()
        return tuple((f"kafka://{first_server}", topic) for topic in (origin.topics or (origin.pattern or "",)))
    if isinstance(origin, Jdbc):
        return _name_database_table(origin, root)
    if isinstance(origin, Http) and not isinstance(origin.url, Secret):
        url = urlsplit(origin.url)
        return ((f"{url.scheme}://{_drop_credentials(url.netloc)}", url.path or "/"),)
    return ()


def _name_files(glob: str, root: Path) -> tuple[str, str]:
    if "://" not in glob:
        return "file", str(root / glob)
    url = urlsplit(glob.replace("?", "%3F"))
    return f"{url.scheme}://{_drop_credentials(url.netloc)}", url.path.lstrip("/").replace("%3F", "?")


def _name_database_table(origin: Jdbc, root: Path) -> tuple[tuple[str, str], ...]:
    if isinstance(origin.url, Secret) or origin.table is None:
        return ()
    url = urlsplit(origin.url.strip().removeprefix("jdbc:"))
    if url.scheme == "sqlite":
        return (
            (
                f"sqlite:{root / url.path.lstrip('/') if not url.path.startswith('//') else url.path[1:]}",
                origin.table,
            ),
        )
    scheme = _SCHEMES.get(url.scheme, url.scheme)
    database = url.path.strip("/")
    table = f"public.{origin.table}" if scheme == "postgres" and "." not in origin.table else origin.table
    return ((f"{scheme}://{url.hostname}:{url.port or _PORTS.get(scheme, 0)}", f"{database}.{table}"),)


def _drop_credentials(netloc: str) -> str:
    return netloc.rpartition("@")[2]
