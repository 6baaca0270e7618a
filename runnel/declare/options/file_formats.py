"""Define the file formats, by name and by ending, and the options that each takes. Pure."""

from pathlib import PurePosixPath

FORMATS = ("csv", "jsonl", "json", "parquet", "avro", "orc", "xml", "text", "binary")
ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".avro": "avro",
    ".orc": "orc",
    ".xml": "xml",
    ".txt": "text",
    ".log": "text",
}
COMPRESSED_ENDINGS = (".gz", ".zst", ".bz2", ".xz", ".zip")
_TEXT_FORMATS = ("csv", "jsonl", "json", "xml")  # text formats whose values are converted to types
OPTION_FORMATS = {  # the formats that each option applies to
    "delimiter": ("csv",),
    "header": ("csv",),
    "null": ("csv",),
    "quote": ("csv",),
    "escape": ("csv",),
    "comment": ("csv",),
    "skip": ("csv",),
    "missing": ("csv",),
    "trim": ("csv",),
    "multiline": ("csv",),
    "decimal": ("csv", "xml"),
    "date_format": _TEXT_FORMATS,
    "timestamp_format": _TEXT_FORMATS,
    "encoding": ("csv", "jsonl", "json", "text"),
    "records": ("json",),
    "row_tag": ("xml",),
    "thousands": ("csv", "xml"),
    "timezone": _TEXT_FORMATS,
    "missing_columns": ("csv", "jsonl", "json", "parquet", "avro", "orc", "xml"),
}


def infer_format(glob: str) -> str | None:
    """Return the format that a file's extension names; in a compressed file it precedes the last dot.

    >>> infer_format("data/*.csv.gz"), infer_format("s3://logs/**/*.JSON"), infer_format("data/*")
    ('csv', 'json', None)
    """
    path = PurePosixPath(glob.lower())
    return ENDINGS.get(PurePosixPath(path.stem).suffix if path.suffix in COMPRESSED_ENDINGS else path.suffix)
