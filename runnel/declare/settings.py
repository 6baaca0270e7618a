"""Load the settings of a project: runnel.toml, the file of an environment, environment variables, `--set`.

Later ones win. Pure except for reading the project's own files; the caller passes in the environment variables.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runnel.declare.observability_settings import (
    LineageSettings,
    TelemetrySettings,
    lineage_settings,
    telemetry_settings,
)
from runnel.declare.options.duration import parse_duration
from runnel.declare.tls_settings import TLS_CHOICES, TlsSettings, tls_settings
from runnel.errors import Mistake, did_you_mean, raise_all
from runnel.model.byte_count import parse_bytes
from runnel.model.secret_mask import is_secret_name
from runnel.model.work_place import DEFAULT_SPLIT_BYTES

SETTINGS_FILE = "runnel.toml"
ENV_PREFIX = "RUNNEL__"
_DEFAULTS: dict[str, dict[str, Any]] = {
    "project": {"name": ""},
    "lake": {"catalog": "sqlite:///.runnel/catalog.db", "warehouse": ".runnel/warehouse", "storage": {}},
    "spark": {
        "master": "local[*]",
        "run_on": "auto",
        "executors_from": "256 MiB",
        "split_size": "128 MiB",
        "shared": [],
        "conf": {},
    },
    "params": {},
    "retention": {"commits": "30 days", "stream": "1 day", "failed": "3 days", "grace": "1 hour", "branches": {}},
    "service": {
        "host": "127.0.0.1",
        "port": 8470,
        "tls": "",
        "tls_cert": "",
        "tls_key": "",
        "query_timeout": "2 minutes",
        "max_upload": "16 GiB",
    },
    "openlineage": {"url": "", "namespace": "", "api_key": ""},
    "telemetry": {"endpoint": "", "headers": {}},
}
_MAX_PORT = 65_535
_MIN_KEY_LENGTH = 8
_PUBLIC_SECTIONS = ("project", "service", "spark")  # apart from `conf`, whose values are resolved one by one
_RUN_ON = ("auto", "process", "executors")
_ODD_CHARACTERS = set("*?[]#%")
_ENVIRONMENT, FROM_SET = "the environment", "--set"
_TYPE_NAMES = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "a table",
}  # fmt: skip
_OPEN_SECTIONS = {"params"}  # sections whose keys the user chooses


@dataclass(frozen=True)
class ParamOrigin:
    """Where the value of a parameter is set: a file's path, `the environment` or `--set`. It may be a secret."""

    at: str
    is_hidden: bool


@dataclass(frozen=True)
class Settings:
    """A project's complete settings, with absolute paths. `secrets` are the values that must never be shown."""

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
    max_upload_bytes: int
    run_on: str = "auto"
    executors_from_bytes: int = 256 << 20
    shared_folders: tuple[str, ...] = ()
    split_bytes: int = DEFAULT_SPLIT_BYTES
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    param_origins: Mapping[str, ParamOrigin] = field(default_factory=dict)
    openlineage: LineageSettings = field(default_factory=LineageSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    tls: TlsSettings = field(default_factory=TlsSettings)

    @property
    def home(self) -> Path:
        """Return the folder of the embedded lake and the logs."""
        return self.root / ".runnel"


def find_root(start: Path) -> Path:
    """Return the project folder that contains `start`, searching upwards as git does."""
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / SETTINGS_FILE).is_file():
            return folder
    raise Mistake(
        "PROJECT_NOT_FOUND",
        f"there is no {SETTINGS_FILE} in {start} or above it",
        fix="`runnel init` creates a project here; `-C DIR` names another folder",
    )


def load_settings(
    root: Path, *, env: str | None = None, environ: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> Settings:
    """Load the settings of the project in `root`."""
    values = {section: dict(keys) for section, keys in _DEFAULTS.items()}
    origins: dict[str, ParamOrigin] = {}

    def apply_layer(layer: Mapping[str, Any], at: str) -> None:
        _merge_layer(values, layer, at)
        for name, value in layer.get("params", {}).items():
            origins[name] = ParamOrigin(at, at == _ENVIRONMENT or _is_pointer(value))

    apply_layer(_read(root / SETTINGS_FILE), str(root / SETTINGS_FILE))
    if env is not None:
        path = root / f"runnel.{env}.toml"
        if not path.is_file():
            environments = [file.name.split(".")[1] for file in root.glob("runnel.*.toml")]
            what = f"the environment `{env}` has no file {path.name}" + did_you_mean(env, environments)
            raise Mistake(
                "PROJECT_ENV", what, fix=f"create {path.name} next to {SETTINGS_FILE}, or choose another --env"
            )
        apply_layer(_read(path), str(path))
    apply_layer(_read_environment(environ or {}), _ENVIRONMENT)
    apply_layer(_parse_overrides(overrides), FROM_SET)
    return replace(_build_settings(root, values, environ or {}), param_origins=origins)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise Mistake("PROJECT_TOML", f"{path.name} is not valid TOML: {error}", at=str(path)) from error
    except UnicodeDecodeError as error:
        raise Mistake("PROJECT_TOML", f"{path.name} is not UTF-8 text", at=str(path)) from error


def _merge_layer(values: dict[str, dict[str, Any]], layer: Mapping[str, Any], at: str) -> None:
    """Merge a layer into the values; raise all its mistakes at once."""
    mistakes: list[Mistake] = []
    for section, keys in layer.items():
        if section not in values:
            mistakes.append(_describe_unknown_setting(f"[{section}]", section, values, at))
        elif not isinstance(keys, dict):
            what = f"`{section}` is a section, not a value"
            mistakes.append(Mistake("PROJECT_SETTING", what, at=at, fix=f"write [{section}]"))
        else:
            for key, value in keys.items():
                try:
                    values[section][key] = _check_setting(section, key, value, at)
                except Mistake as mistake:
                    mistakes.append(mistake)
    raise_all(mistakes)


def _check_setting(section: str, key: str, value: Any, at: str) -> Any:
    if section not in _OPEN_SECTIONS and key not in _DEFAULTS[section]:
        raise _describe_unknown_setting(f"{section}.{key}", key, _DEFAULTS[section], at)
    checked_value = _check_type(f"{section}.{key}", value, _DEFAULTS[section].get(key), at)
    if not _is_pointer(value):
        _check_value(f"{section}.{key}", checked_value, at)
    return checked_value


def _check_value(name: str, value: Any, at: str) -> None:
    """Raise if a value can't be read, such as that of a port; together with the other mistakes of its file."""
    if name == "service.port":
        _parse_port(name, value, at)
    elif name == "service.query_timeout":
        _parse_seconds(name, value, at)
    elif name == "service.tls":
        _parse_choice(name, value, TLS_CHOICES, at)
    elif name == "spark.run_on":
        _parse_choice(name, value, _RUN_ON, at)
    elif name in ("spark.executors_from", "spark.split_size", "service.max_upload"):
        _parse_bytes(name, value, at)


def _describe_unknown_setting(label: str, name: str, allowed: Mapping[str, Any], at: str) -> Mistake:
    what = f"there is no setting `{label}`" + did_you_mean(name, allowed)
    return Mistake("PROJECT_SETTING", what, at=at, fix=f"known here: {', '.join(allowed)}")


def _check_type(name: str, value: Any, default: Any, at: str) -> Any:
    if default is None or _is_pointer(value):
        return value
    if isinstance(default, int) and isinstance(value, str) and value.isdigit():
        return int(value)
    if isinstance(default, list) and isinstance(value, str) and at in (_ENVIRONMENT, FROM_SET):
        return value  # separated by commas
    if type(value) is not type(default):  # don't show the value: it may be a secret
        what = f"`{name}` must be {_describe_type(default)}, not {_describe_type(value)}"
        fix = (
            f"write a [{name}] section in {SETTINGS_FILE}"
            if isinstance(default, dict)
            else f"write {_describe_type(default)}"
        )
        raise Mistake("PROJECT_SETTING", what, at=at, fix=fix)
    return value


def _describe_type(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), f"a {type(value).__name__}")


def _is_pointer(value: Any) -> bool:
    """Return whether a value only points to the real one: `{ env = }` or `{ file = }`."""
    return isinstance(value, dict) and set(value) in ({"env"}, {"file"})


def _read_environment(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {}
    for name, value in environ.items():
        if name.startswith(ENV_PREFIX):
            section, _, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
            sections.setdefault(section, {})[key] = value
    return sections


def _parse_overrides(overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse `section.key=value` as a setting and `name=value` as a parameter."""
    sections: dict[str, dict[str, Any]] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name:
            what = "a --set has no name before its `=`" if equals else "a --set has no `=`, so there is no value"
            raise Mistake("PROJECT_SET", what, fix="write --set name=value")
        section, dot, key = name.partition(".")
        if dot and section in _DEFAULTS:
            sections.setdefault(section, {})[key] = value
        else:
            sections.setdefault("params", {})[name] = value
    return sections


def _build_settings(root: Path, values: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str]) -> Settings:
    secrets: set[str] = set()
    settings_path = str(root / SETTINGS_FILE)

    def resolve(section: str, key: str) -> Any:
        is_public = section in _PUBLIC_SECTIONS or (section, key) == ("lake", "warehouse")
        name, value = f"{section}.{key}", values[section][key]
        return _resolve_value(name, value, root, environ, set() if is_public else secrets)

    name = resolve("project", "name")
    if not name:
        raise Mistake(
            "PROJECT_NAME",
            f"{SETTINGS_FILE} has no project.name",
            at=settings_path,
            fix='add [project] and name = "..."',
        )
    key = str(resolve("openlineage", "api_key"))
    headers = {
        name: str(_resolve_value(f"telemetry.headers.{name}", value, root, environ, secrets))
        for name, value in values["telemetry"]["headers"].items()
    }
    secrets.update(secret for secret in (key, *headers.values()) if secret)  # also if they are written in a file
    secrets.update(_list_literal_secrets(values["lake"]["storage"]), _list_literal_secrets(values["spark"]["conf"]))
    return Settings(
        root=root,
        name=name,
        catalog=_absolute_catalog(resolve("lake", "catalog"), root),
        warehouse=_absolute_path(resolve("lake", "warehouse"), root),
        storage={
            key: str(_resolve_value(key, value, root, environ, secrets))
            for key, value in values["lake"]["storage"].items()
        },
        master=resolve("spark", "master"),
        conf={
            key: _spark_value(_resolve_value(key, value, root, environ, secrets))
            for key, value in _flatten_keys(values["spark"]["conf"])
        },
        params={key: _resolve_value(key, value, root, environ, secrets) for key, value in values["params"].items()},
        retention=dict(values["retention"]),
        host=resolve("service", "host"),
        port=_parse_port("service.port", resolve("service", "port"), settings_path),
        query_timeout_seconds=_parse_seconds(
            "service.query_timeout", resolve("service", "query_timeout"), settings_path
        ),
        max_upload_bytes=_parse_bytes("service.max_upload", resolve("service", "max_upload"), settings_path),
        run_on=_parse_choice("spark.run_on", resolve("spark", "run_on"), _RUN_ON, settings_path),
        executors_from_bytes=_parse_bytes("spark.executors_from", resolve("spark", "executors_from"), settings_path),
        shared_folders=_parse_folders("spark.shared", resolve("spark", "shared"), root),
        split_bytes=_parse_bytes("spark.split_size", resolve("spark", "split_size"), settings_path),
        secrets=frozenset(secrets),
        openlineage=lineage_settings(resolve("openlineage", "url"), resolve("openlineage", "namespace"), key, name),
        telemetry=telemetry_settings(resolve("telemetry", "endpoint"), headers),
        tls=tls_settings(
            root,
            resolve("service", "tls"),
            certificate=resolve("service", "tls_cert"),
            key=resolve("service", "tls_key"),
            at=settings_path,
        ),
    )


def _list_literal_secrets(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that are secret by their names, though they stand in the file; short ones are no keys."""
    for name, value in _flatten_keys(settings):
        if isinstance(value, str) and len(value) >= _MIN_KEY_LENGTH and is_secret_name(name):
            yield value


def _resolve_value(name: str, value: Any, root: Path, environ: Mapping[str, str], secrets: set[str]) -> Any:
    """Return a value; read it from where `{ env = }` or `{ file = }` points."""
    if not _is_pointer(value):
        return value
    if "env" in value:
        if value["env"] not in environ:
            raise Mistake(
                "PROJECT_SECRET",
                f"`{name}` comes from the variable {value['env']}, which is not set",
                fix=f"export {value['env']}=...",
            )
        resolved = environ[value["env"]]
    else:
        path = root / value["file"]
        if not path.is_file():
            raise Mistake("PROJECT_SECRET", f"`{name}` comes from {path}, which does not exist", fix="create the file")
        resolved = path.read_text(encoding="utf-8").strip()
    secrets.add(resolved)
    return resolved


def _parse_seconds(name: str, text: str, at: str) -> int:
    try:
        return parse_duration(text)
    except Mistake as mistake:
        raise Mistake("PROJECT_SETTING", f"`{name}` is not a duration", at=at, fix=mistake.fix) from None


def _parse_choice(name: str, text: str, choices: Sequence[str], at: str) -> str:
    if text in choices:
        return text
    what = f"`{name}` can't be {text!r}" + did_you_mean(text, choices)
    fix = f"write one of {', '.join(choice or 'nothing' for choice in choices)}"
    raise Mistake("PROJECT_SETTING", what, at=at, fix=fix)


def _parse_bytes(name: str, text: str, at: str) -> int:
    try:
        size = parse_bytes(text)
    except Mistake as mistake:
        what = f"`{name}` is not a size"
        raise Mistake("PROJECT_SETTING", what, at=at, fix=mistake.fix) from None
    if not size and name == "spark.split_size":
        raise Mistake("PROJECT_SETTING", f"`{name}` can't be 0", at=at, fix='write a size, such as "128 MiB"')
    return size


def _parse_folders(name: str, folders: Any, root: Path) -> tuple[str, ...]:
    """Return absolute paths; from the environment or `--set`, folders are separated by commas."""
    names = [part.strip() for part in folders.split(",")] if isinstance(folders, str) else folders
    for folder in names:
        if not isinstance(folder, str) or not folder:
            what = f"`{name}` must be a list of folders"
            fix = f'write {name.rpartition(".")[2]} = ["/mnt/lake"]'
            raise Mistake("PROJECT_SETTING", what, at=str(root / SETTINGS_FILE), fix=fix)
    return tuple(str((root / folder).resolve()) for folder in names)


def _parse_port(name: str, value: Any, at: str) -> int:
    if str(value).isdecimal() and int(value) <= _MAX_PORT:
        return int(value)
    fix = f"write a number from 1 to {_MAX_PORT}; 0 is any free port"
    raise Mistake("PROJECT_SETTING", f"`{name}` is not a port", at=at, fix=fix)


def _absolute_path(location: str, root: Path) -> str:
    if "://" in location:
        return location.rstrip("/")
    path = str((root / location).resolve())
    if odd_characters := sorted(_ODD_CHARACTERS & set(path)):
        what = (
            f"the folder {path} has {' '.join(odd_characters)} in its name, "
            "which have a special meaning in database addresses and globs"
        )
        raise Mistake("PROJECT_PATH", what, fix="move the project, or set lake.catalog and lake.warehouse elsewhere")
    return path


def _absolute_catalog(url: str, root: Path) -> str:
    """Return a catalog address whose SQLite file does not depend on the current folder.

    >>> _absolute_catalog("sqlite:///.runnel/catalog.db", Path("/p"))
    'sqlite:////p/.runnel/catalog.db'
    """
    start = "sqlite:///"
    if not url.startswith(start) or url.startswith(start + "/"):
        return url
    return f"{start}{(root / url.removeprefix(start)).resolve()}"


def _flatten_keys(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of nested tables: TOML reads `spark.sql.x = 1` as tables if the key is not quoted.

    >>> dict(_flatten_keys({"spark": {"sql": {"x": 1}}, "spark.ui.port": 2}))
    {'spark.sql.x': 1, 'spark.ui.port': 2}
    """
    for key, value in table.items():
        if isinstance(value, Mapping) and not _is_pointer(value):
            yield from _flatten_keys(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _spark_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
