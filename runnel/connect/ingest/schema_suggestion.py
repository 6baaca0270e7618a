"""Suggest a schema for a source that has none, from the first rows of one of its files. Never raises."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.ingest.detect.listing import find_first_file, is_object_url
from runnel.declare.model.endpoints import Files
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.connect.files.file_patterns import LocalFile
    from runnel.connect.load.schema_inference import InferredSchema

_SAMPLE_BYTES = 1 << 20
_MAX_DOCUMENT_BYTES = 8 << 20  # a JSON or XML document is read as a whole
_LINE_FORMATS = ("csv", "jsonl")
_ANY_TABLE = TableName("ods", "files")
_Options = tuple[tuple[str, str], ...]
_EUROPEAN_OPTIONS: tuple[_Options, ...] = (  # tried in files with semicolons; they count if fewer columns stay text
    (("decimal", ","),),
    (("decimal", ","), ("thousands", ".")),
    (("date_format", "%d.%m.%Y"),),
)


def suggest_schema(root: Path, files: Files) -> str | None:
    """Return the missing options of `rn.files`, such as `delimiter=";", schema="id long"`; None if it can't tell."""
    try:
        if is_object_url(files.glob):
            return None
        listed_file = find_first_file(root, files.glob)
        if listed_file is None or not listed_file.size:
            return None
        from runnel.connect.files.file_patterns import make_local_file

        with temp_dirs.create_scoped("schema") as folder:
            sample = _sample_file(make_local_file(listed_file.path, root / listed_file.path), files, Path(folder))
            return _describe_sample(sample, files) if sample is not None else None
    except Exception:  # whatever is wrong with the file: the mistake in the declaration is what the user has to hear of
        return None


def _describe_sample(sample: "LocalFile", files: Files) -> str:
    options = _detect_dialect(sample, files)
    schema = _infer_sample(sample, files, options)
    delimiter = dict((*files.options, *options)).get("delimiter")
    for more_options in _EUROPEAN_OPTIONS if files.format == "csv" and delimiter == ";" else ():
        trial_options = _merge_options(files, options, more_options)
        trial_schema = _infer_sample(sample, files, trial_options)
        if trial_schema.count_strings() < schema.count_strings():
            options, schema = trial_options, trial_schema
    texts = [f'{name}="{_escape(value)}"' for name, value in (*options, ("schema", schema.text))]
    return f"{', '.join(texts)} (from the first rows of {sample.name})"


def _infer_sample(sample: "LocalFile", files: Files, options: _Options) -> "InferredSchema":
    from runnel.connect.ingest.read_request import build_files_request
    from runnel.connect.load.schema_inference import infer_schema

    return infer_schema(build_files_request(_ANY_TABLE, replace(files, options=(*files.options, *options)), [sample]))


def _merge_options(files: Files, options: _Options, more_options: _Options) -> _Options:
    """Return the options with more of them, without those that are declared."""
    declared_names = {name for name, _ in files.options}
    return tuple(
        {**dict(options), **{name: value for name, value in more_options if name not in declared_names}}.items()
    )


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")


def _detect_dialect(sample: "LocalFile", files: Files) -> tuple[tuple[str, str], ...]:
    """Return the encoding and the delimiter that the file seems to need and that are not declared."""
    from runnel.connect.files.dialect_detection import detect_delimiter, detect_encoding
    from runnel.connect.files.load_request import build_csv_options

    names = {name for name, _ in files.options}
    dialect: list[tuple[str, str]] = []
    encoding = detect_encoding(Path(sample.path).read_bytes()) if "encoding" not in names else None
    if encoding and files.format != "xml":
        dialect.append(("encoding", encoding))
    if files.format == "csv":
        delimiter = detect_delimiter(sample, build_csv_options((*files.options, *dialect)))
        dialect += [("delimiter", delimiter)] if delimiter else []
    return tuple(dialect)


def _sample_file(file: "LocalFile", files: Files, folder: Path) -> "LocalFile | None":
    """Return a decompressed copy of the first lines of a file; None if it is too large to look into."""
    from runnel.connect.files.scratch_files import open_file

    limit = _SAMPLE_BYTES if files.format in _LINE_FORMATS else _MAX_DOCUMENT_BYTES
    with open_file(file) as stream:
        head = stream.read(limit)
        is_complete = not stream.read(1)
    if not is_complete:
        if files.format not in _LINE_FORMATS or b"\n" not in head or b"\0" in head[:4096]:
            return None
        head = head[: head.rindex(b"\n") + 1]
    path = folder / f"sample{file.extension}"
    path.write_bytes(head)
    return replace(file, path=str(path), bytes=len(head), modified_at=path.stat().st_mtime)
