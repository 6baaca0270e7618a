"""Tell the likely encoding and delimiter of a text file, so that an error can name the option that reads it.

Nothing is read with a detected dialect: the user decides.
"""

import codecs
from dataclasses import replace
from itertools import islice, pairwise

from runnel.connect.files.compression import describe_read_errors
from runnel.connect.files.csv_text.csv_records import choose_delimiter, read_records
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import CsvOptions
from runnel.connect.files.scratch_files import is_utf8, open_file
from runnel.errors import Mistake

_HEAD_BYTES = 4096
_MAX_BYTES = 16 << 20
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DELIMITERS = (";", "\t", "|")
_OTHER_ENCODINGS = "--encoding cp1251 (Cyrillic), gbk (Chinese) or shift_jis (Japanese)"


def detect_encoding(text: bytes) -> str | None:
    """Return the likely encoding of bytes; "" if they are not UTF-8 and nothing is likely, None if they are UTF-8.

    >>> detect_encoding("id;Köln".encode("cp1252")), detect_encoding("id,v".encode("utf-16-le"))
    ('cp1252', 'utf-16-le')
    >>> detect_encoding("Köln".encode()), detect_encoding("Москва, Россия".encode("cp1251"))
    (None, '')
    """
    wide_encoding = _detect_wide_encoding(text)
    if wide_encoding is not None:
        return wide_encoding
    try:
        codecs.getincrementaldecoder("utf-8")().decode(text)
    except UnicodeDecodeError:
        return "cp1252" if _is_mostly_ascii(text) else ""
    return None


def suggest_encoding(file: LocalFile) -> str:
    """Return the fix for a file that is not UTF-8: the likely encoding, else examples."""
    encoding = _detect_file_encoding(file)
    return f"name the encoding: --encoding {encoding}" if encoding else f"name the encoding, such as {_OTHER_ENCODINGS}"


def check_encoding(file: LocalFile, options: CsvOptions) -> None:
    """Raise if a file that should be UTF-8 is UTF-16 or UTF-32."""
    if not is_utf8(options.encoding, file):
        return
    with describe_read_errors(file.name, file.path), open_file(file) as stream:
        wide_encoding = _detect_wide_encoding(stream.read(_HEAD_BYTES))
    if wide_encoding is not None:
        what = f"{file.name} is not UTF-8: its bytes look like {wide_encoding}"
        fix = f"name the encoding: --encoding {wide_encoding}"
        delimiter = detect_delimiter(file, replace(options, encoding=wide_encoding))
        fix += f" and the delimiter: --delimiter {_quote(delimiter)}" if delimiter else ""
        raise Mistake("LOAD_ENCODING", what, at=f"{file.name}:1", fix=fix)


def check_delimiter(file: LocalFile, options: CsvOptions) -> None:
    """Raise if no delimiter was named and the file seems to have another one than the default."""
    delimiter = detect_delimiter(file, options)
    if delimiter is not None:
        default = choose_delimiter(file, options)
        encoding = _detect_file_encoding(file) if is_utf8(options.encoding, file) else None
        header = next(read_records(file, options)).values[0].encode(errors="surrogateescape")
        header_text = header.decode(encoding or "utf-8", errors="replace")
        what = f"{file.name} has one column, `{header_text}`: its values seem to be separated by {_quote(delimiter)}"
        and_encoding = f" and, since it is not UTF-8, the encoding: --encoding {encoding}" if encoding else ""
        fix = f"name the delimiter: --delimiter {_quote(delimiter)}{and_encoding}"
        fix += f"; if it is one column, --delimiter {_quote(default)}"
        raise Mistake("LOAD_CSV", what, at=f"{file.name}:1", fix=fix)


def detect_delimiter(file: LocalFile, options: CsvOptions) -> str | None:
    """Return the likely delimiter of a file that has one column if it is read with the default one, else None."""
    if options.delimiter is not None:
        return None
    records = list(islice(read_records(file, options), 2))
    if not records or len(records[0].values) != 1 or records[0].values[0].lower() in map(str.lower, options.names):
        return None
    counts = {delimiter: [record.text.count(delimiter) for record in records] for delimiter in _DELIMITERS}
    likely = [delimiter for delimiter, numbers in counts.items() if all(number == numbers[0] > 0 for number in numbers)]
    return max(likely, key=lambda delimiter: counts[delimiter][0], default=None)


def _detect_file_encoding(file: LocalFile) -> str | None:
    with describe_read_errors(file.name, file.path), open_file(file) as stream:
        return detect_encoding(stream.read(_MAX_BYTES))


def _quote(delimiter: str) -> str:
    return '"\\t"' if delimiter == "\t" else f'"{delimiter}"'


def _detect_wide_encoding(text: bytes) -> str | None:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if text.startswith(mark):
            return encoding
    head = text[:_HEAD_BYTES]
    even_zeros, odd_zeros = head[::2].count(0), head[1::2].count(0)
    if max(even_zeros, odd_zeros) * 4 < len(head) or not head:
        return None
    return "utf-16-le" if odd_zeros > even_zeros else "utf-16-be"


def _is_mostly_ascii(text: bytes) -> bool:
    """Tell whether bytes beyond ASCII stand alone, as accents and umlauts do; in other scripts they are in groups."""
    is_high = [byte > 127 for byte in text[: 1 << 20]]
    if True not in is_high:
        return True
    pairs = sum(first and second for first, second in pairwise(is_high))
    return pairs * 2 <= sum(is_high)
