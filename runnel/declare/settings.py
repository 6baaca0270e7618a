"""The settings of a project: runnel.toml, the file of an environment, the environment's variables, `--set`.

Later ones win. Pure but for reading the project's own files; the caller passes the environment in.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runnel.declare.observability_settings import (
    LineageSettings,
    TelemetrySettings,
    lineage_settings,
    telemetry_settings,
)
from runnel.declare.options.duration import seconds_of
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
_ENVIRONMENT, FROM_SET = "the environment", "--set"
_KINDS = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "a table",
}  # fmt: skip
_OPEN = {"params"}  # sections whose keys are the user's


@dataclass(frozen=True)
class ParamOrigin:
    """Where the value of a parameter stands: a file's path, `the environment` or `--set`. It may be a secret."""

    at: str
    is_hidden: bool


@dataclass(frozen=True)
class Settings:
    """A project's settings, complete, with paths made absolute. `secrets` are the values that must never be shown."""

    root: Path
    name: str
    catalog: str = field(repr=False)
    warehouse: str
    storage: Mapping[str, str] = field(repr=False)
    master: str
    conf: Mapping[str, str] = field(repr=False)
    params: Mapping[str, Any] = field(repr=False)
    retention: Mapping[str, Any]
    host: str
    port: int
    query_timeout_seconds: int
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    param_origins: Mapping[str, ParamOrigin] = field(default_factory=dict)
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
    origins: dict[str, ParamOrigin] = {}

    def lay(given: Mapping[str, Any], at: str) -> None:
        _lay(values, given, at)
        for name, value in given.get("params", {}).items():
            origins[name] = ParamOrigin(at, at == _ENVIRONMENT or _is_pointer(value))

    lay(_read(root / FILE), str(root / FILE))
    if env is not None:
        path = root / f"runnel.{env}.toml"
        if not path.is_file():
            known = [found.name.split(".")[1] for found in root.glob("runnel.*.toml")]
            close = nearest(env, known)
            what = f"the environment `{env}` has no file {path.name}" + (f"; close: `{close}`" if close else "")
            raise Mistake("PROJECT_ENV", what, fix=f"create {path.name} next to {FILE}, or choose another --env")
        lay(_read(path), str(path))
    lay(_from_environment(environ or {}), _ENVIRONMENT)
    lay(_from_overrides(overrides), FROM_SET)
    return replace(_complete(root, values, environ or {}), param_origins=origins)


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
    if default is None or _is_pointer(value):
        return value
    if isinstance(default, int) and isinstance(value, str) and value.isdigit():
        return int(value)
    if type(value) is not type(default):  # what it is goes untold: it may be a secret
        what = f"`{name}` must be {_called(default)}, not {_called(value)}"
        fix = f"write a [{name}] section in {FILE}" if isinstance(default, dict) else f"write {_called(default)}"
        raise Mistake("PROJECT_SETTING", what, at=at, fix=fix)
    return value


def _called(value: Any) -> str:
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def _is_pointer(value: Any) -> bool:
    """Tell whether a value says only where the value is."""
    return isinstance(value, dict) and set(value) in ({"env"}, {"file"})


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
            what = "a --set has no name before its `=`" if equals else "a --set has no `=`, so there is no value"
            raise Mistake("PROJECT_SET", what, fix="write --set name=value")
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
    if not _is_pointer(value):
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
        raise Mistake("PROJECT_SETTING", f"`{name}` is not a duration", at=str(root / FILE), fix=mistake.fix) from None


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
