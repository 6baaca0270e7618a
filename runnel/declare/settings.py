"""The settings of a project: runnel.toml, the file of an environment, the environment's variables, `--set`.

Later ones win. Pure but for reading the project's own files; the caller passes the environment in.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runnel.declare.duration import seconds_of
from runnel.declare.observing import LineageSettings, TelemetrySettings, lineage_settings, telemetry_settings
from runnel.errors import Mistake, nearest

FILE = "runnel.toml"
PREFIX = "RUNNEL__"
_DEFAULTS: dict[str, dict[str, Any]] = {
    "project": {"name": ""},
    "lake": {"catalog": "sqlite:///.runnel/catalog.db", "warehouse": ".runnel/warehouse", "storage": {}},
    "spark": {"master": "local[*]", "conf": {}},
    "params": {},
    "retention": {"commits": "30 days", "stream": "1 day", "failed": "3 days", "grace": "1 hour", "branches": {}},
    "service": {"host": "127.0.0.1", "port": 8470, "query_timeout": "2 minutes"},
    "openlineage": {"url": "", "namespace": "", "api_key": ""},
    "telemetry": {"endpoint": "", "headers": {}},
}
_ODD = set("*?[]#%")
_OPEN = {"params"}  # sections whose keys are the user's


@dataclass(frozen=True)
class Settings:
    """A project's settings, complete, with paths made absolute. `secrets` are the values that must never be shown."""

    root: Path
    name: str
    catalog: str
    warehouse: str
    storage: Mapping[str, str]
    master: str
    conf: Mapping[str, str]
    params: Mapping[str, Any]
    retention: Mapping[str, Any]
    host: str
    port: int
    query_timeout_seconds: int
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    set_params: tuple[str, ...] = ()  # the names of `params` that came from --set
    openlineage: LineageSettings = field(default_factory=LineageSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)

    @property
    def home(self) -> Path:
        """Return the folder of the embedded lake and the logs."""
        return self.root / ".runnel"


def find_root(start: Path) -> Path:
    """Return the project folder that `start` is in, going up as git does."""
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / FILE).is_file():
            return folder
    raise Mistake(
        "PROJECT_NOT_FOUND",
        f"there is no {FILE} in {start} or above it",
        fix="`runnel init` makes a project here; `-C DIR` names another folder",
    )


def load(
    root: Path, *, env: str | None = None, environ: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> Settings:
    """Return the settings of the project in `root`."""
    values = {section: dict(keys) for section, keys in _DEFAULTS.items()}
    _lay(values, _read(root / FILE), str(root / FILE))
    if env is not None:
        path = root / f"runnel.{env}.toml"
        if not path.is_file():
            known = [found.name.split(".")[1] for found in root.glob("runnel.*.toml")]
            close = nearest(env, known)
            what = f"the environment `{env}` has no file {path.name}" + (f"; close: `{close}`" if close else "")
            raise Mistake("PROJECT_ENV", what, fix=f"create {path.name} next to {FILE}, or choose another --env")
        _lay(values, _read(path), str(path))
    _lay(values, _from_environment(environ or {}), "the environment")
    given = _from_overrides(overrides)
    _lay(values, given, "--set")
    return replace(_complete(root, values, environ or {}), set_params=tuple(given.get("params", ())))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise Mistake("PROJECT_TOML", f"{path.name} is not valid TOML: {error}", at=str(path)) from error
    except UnicodeDecodeError as error:
        raise Mistake("PROJECT_TOML", f"{path.name} is not UTF-8 text", at=str(path)) from error


def _lay(values: dict[str, dict[str, Any]], given: Mapping[str, Any], at: str) -> None:
    for section, keys in given.items():
        if section not in values:
            raise _unknown(f"[{section}]", section, values, at)
        if not isinstance(keys, dict):
            raise Mistake("PROJECT_SETTING", f"`{section}` is a section, not a value", at=at, fix=f"write [{section}]")
        for key, value in keys.items():
            if section not in _OPEN and key not in _DEFAULTS[section]:
                raise _unknown(f"{section}.{key}", key, _DEFAULTS[section], at)
            values[section][key] = _typed(f"{section}.{key}", value, _DEFAULTS[section].get(key), at)


def _unknown(shown: str, name: str, known: Mapping[str, Any], at: str) -> Mistake:
    close = nearest(name, known)
    what = f"there is no setting `{shown}`" + (f"; close: `{close}`" if close else "")
    return Mistake("PROJECT_SETTING", what, at=at, fix=f"known here: {', '.join(known)}")


def _typed(name: str, value: Any, default: Any, at: str) -> Any:
    if default is None or (isinstance(value, dict) and set(value) in ({"env"}, {"file"})):
        return value
    if isinstance(default, int) and isinstance(value, str) and value.isdigit():
        return int(value)
    if type(value) is not type(default):
        kinds = {str: "text", int: "a whole number", dict: "a table"}
        wanted = kinds.get(type(default), type(default).__name__)
        raise Mistake("PROJECT_SETTING", f"`{name}` must be {wanted}, not {value!r}", at=at)
    return value


def _from_environment(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, value in environ.items():
        if name.startswith(PREFIX):
            section, _, key = name.removeprefix(PREFIX).lower().partition("__")
            found.setdefault(section, {})[key] = value
    return found


def _from_overrides(overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return `section.key=value` as a setting and `name=value` as a parameter."""
    found: dict[str, dict[str, Any]] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Mistake("PROJECT_SET", f"--set {text!r} has no value", fix="write --set name=value")
        section, dot, key = name.partition(".")
        if dot and section in _DEFAULTS:
            found.setdefault(section, {})[key] = value
        else:
            found.setdefault("params", {})[name] = value
    return found


def _complete(root: Path, values: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str]) -> Settings:
    secrets: set[str] = set()

    def plain(section: str, key: str) -> Any:
        return _revealed(f"{section}.{key}", values[section][key], root, environ, secrets)

    name = plain("project", "name")
    if not name:
        raise Mistake(
            "PROJECT_NAME", f"{FILE} has no project.name", at=str(root / FILE), fix='add [project] and name = "..."'
        )
    key = str(plain("openlineage", "api_key"))
    headers = {
        name: str(_revealed(f"telemetry.headers.{name}", value, root, environ, secrets))
        for name, value in values["telemetry"]["headers"].items()
    }
    secrets.update(word for word in (key, *headers.values()) if word)  # also where they stand in a file
    return Settings(
        root=root,
        name=name,
        catalog=_absolute_catalog(plain("lake", "catalog"), root),
        warehouse=_absolute(plain("lake", "warehouse"), root),
        storage={
            key: str(_revealed(key, value, root, environ, secrets)) for key, value in values["lake"]["storage"].items()
        },
        master=plain("spark", "master"),
        conf={
            key: _spark_value(_revealed(key, value, root, environ, secrets))
            for key, value in values["spark"]["conf"].items()
        },
        params={key: _revealed(key, value, root, environ, secrets) for key, value in values["params"].items()},
        retention=dict(values["retention"]),
        host=plain("service", "host"),
        port=plain("service", "port"),
        query_timeout_seconds=_seconds("service.query_timeout", plain("service", "query_timeout"), root),
        secrets=frozenset(secrets),
        openlineage=lineage_settings(plain("openlineage", "url"), plain("openlineage", "namespace"), key, name),
        telemetry=telemetry_settings(plain("telemetry", "endpoint"), headers),
    )


def _revealed(name: str, value: Any, root: Path, environ: Mapping[str, str], secrets: set[str]) -> Any:
    """Return a value, taken from where `{ env = }` or `{ file = }` points."""
    if not isinstance(value, dict) or set(value) not in ({"env"}, {"file"}):
        return value
    if "env" in value:
        if value["env"] not in environ:
            raise Mistake(
                "PROJECT_SECRET",
                f"`{name}` comes from the variable {value['env']}, which is not set",
                fix=f"export {value['env']}=...",
            )
        found = environ[value["env"]]
    else:
        path = root / value["file"]
        if not path.is_file():
            raise Mistake("PROJECT_SECRET", f"`{name}` comes from {path}, which is not there", fix="create the file")
        found = path.read_text(encoding="utf-8").strip()
    secrets.add(found)
    return found


def _seconds(name: str, text: str, root: Path) -> int:
    try:
        return seconds_of(text)
    except Mistake as mistake:
        raise Mistake("PROJECT_SETTING", f"`{name}`: {mistake.what}", at=str(root / FILE), fix=mistake.fix) from None


def _absolute(location: str, root: Path) -> str:
    if "://" in location:
        return location.rstrip("/")
    found = str((root / location).resolve())
    if odd := sorted(_ODD & set(found)):
        what = f"the folder {found} has {' '.join(odd)} in its name, which database addresses and globs read otherwise"
        raise Mistake("PROJECT_PATH", what, fix="move the project, or set lake.catalog and lake.warehouse elsewhere")
    return found


def _absolute_catalog(url: str, root: Path) -> str:
    """Return a catalog address whose SQLite file does not depend on the current folder.

    >>> _absolute_catalog("sqlite:///.runnel/catalog.db", Path("/p"))
    'sqlite:////p/.runnel/catalog.db'
    """
    start = "sqlite:///"
    if not url.startswith(start) or url.startswith(start + "/"):
        return url
    return f"{start}{(root / url.removeprefix(start)).resolve()}"


def _spark_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
