"""Combine many small CSV files into one, in which each row starts with the token of its file.

DuckDB takes far longer to open a small file than to read it. Only files in which each line is one record are combined,
and nothing about them is reported from the combined file: if DuckDB rejects a row there, the files themselves are read.
"""

from collections.abc import Mapping
from pathlib import Path

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import CsvOptions

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BUFFER_BYTES = 4 * 1024 * 1024
_TOKEN_LETTERS = frozenset("#0123456789")


def make_token(number: int) -> str:
    """Return the value that stands for a file in combined rows; tokens are in the order of the numbers.

    >>> make_token(7)
    '#00000007'
    """
    return f"#{number:08}"


def can_combine(options: CsvOptions, delimiter: str) -> bool:
    """Tell whether files of this dialect can be combined."""
    is_plain = not options.skip and options.comment is None and options.escape in (None, options.quote)
    return is_plain and not _TOKEN_LETTERS & set(delimiter + options.quote) and not set("\r\n") & set(delimiter)


def combine_files(
    files: Mapping[str, tuple[LocalFile, str]], options: CsvOptions, delimiter: str, path: Path
) -> list[LocalFile]:
    """Write the rows of files, by token and each with the path to read it from, to `path`; return the other files."""
    other_files: list[LocalFile] = []
    with path.open("wb", buffering=_BUFFER_BYTES) as out:
        for token, (file, readable_path) in files.items():
            rows = None if file.compression == "gzip" else read_single_line_rows(readable_path, options)
            if rows is None:
                other_files.append(file)
            elif rows:
                prefix = f"{token}{delimiter}".encode()
                out.write(prefix + rows.replace(b"\n", b"\n" + prefix) + b"\n")
    return other_files


def read_single_line_rows(path: str, options: CsvOptions) -> bytes | None:
    """Return the rows of a file without its header, separated by line feeds; None if a line may not be one row."""
    text = Path(path).read_bytes().removeprefix(_BYTE_ORDER_MARK)
    if b"\r" in text or b"\n\n" in text or text.startswith(b"\n"):
        return None
    quote = options.quote.encode()
    # A value with a line break begins on a line with an odd number of quotes.
    if quote and quote in text and any(line.count(quote) % 2 for line in text.split(b"\n")):
        return None
    rows = text.partition(b"\n")[2] if options.header else text
    return rows.removesuffix(b"\n")
