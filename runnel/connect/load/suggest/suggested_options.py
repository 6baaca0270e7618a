"""The options that a file seems to need, as commands and as `rn.files` take them, and what no option settles."""

from dataclasses import dataclass

OptionValue = str | tuple[str, ...]
Options = tuple[tuple[str, OptionValue], ...]

_BOOLEANS = {"header": "False", "trim": "True", "multiline": "False"}
_UNQUOTED_FLAGS = ("skip", "format", "encoding", "records", "row_tag")


@dataclass(frozen=True)
class Caveat:
    """What a user should check, since the file alone doesn't tell it: in the words of commands, and of `rn.files`."""

    for_command: str
    for_source: str


@dataclass(frozen=True)
class SuggestedOptions:
    """Options of `rn.files` that a file seems to need, and how many rows of the sample are bad even so.

    `schema` are the inferred columns of a text file that turned out to be CSV, if its columns are not declared.
    """

    options: Options = ()
    bad_rows: int = 0
    caveats: tuple[Caveat, ...] = ()
    schema: str | None = None
    total: Caveat | None = None  # about a last line that is a total

    @property
    def as_keywords(self) -> str:
        """Return the options as `rn.files` takes them: `delimiter=";", skip=1`."""
        return format_keywords(self.options)

    @property
    def as_flags(self) -> str:
        """Return the options as commands take them: `--delimiter ";" --skip 1`."""
        return " ".join(format_flag(name, value) for name, value in self.options)

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to say."""
        return not self.options and not self.caveats and self.total is None

    def list_caveats(self, *, is_source: bool, with_total: bool = True) -> list[str]:
        """Return the caveats in the words of commands or of `rn.files`."""
        caveats = [*self.caveats, *([self.total] if self.total is not None and with_total else [])]
        return [caveat.for_source if is_source else caveat.for_command for caveat in caveats]

    def describe_for_command(self, *, with_keywords: bool = False) -> str:
        """Return what to say of a file that could be read, though not in the best way."""
        keywords = f", or {self.as_keywords} in rn.files" if with_keywords else ""
        needs = [f"the file seems to need {self.as_flags}{keywords}"] if self.options else []
        return "; ".join([*needs, *self.list_caveats(is_source=False)])

    def describe_for_source(self, file_name: str) -> str:
        """Return what to say of a source's file that was read, though not in the best way."""
        needs = [f"{file_name} seems to need {self.as_keywords} in rn.files"] if self.options else []
        return "; ".join([*needs, *self.list_caveats(is_source=True)])


def format_keywords(options: Options) -> str:
    """Return options as `rn.files` takes them; a flag has the value that is not its default, whatever is given here.

    >>> format_keywords((("delimiter", ";"), ("header", "false"), ("null", ("", "NA"))))
    'delimiter=";", header=False, null=["", "NA"]'
    """
    return ", ".join(_format_keyword(name, value) for name, value in options)


def format_flag(name: str, value: OptionValue) -> str:
    """Return an option as commands take it.

    >>> format_flag("null", ("", "NA")), format_flag("row_tag", "order")
    ('--null "" --null "NA"', '--row-tag order')
    """
    if name == "header":
        return "--no-header"
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, tuple):
        return " ".join(f'{flag} "{escape_text(text)}"' for text in value)
    return f"{flag} {value}" if name in _UNQUOTED_FLAGS else f'{flag} "{escape_text(value)}"'


def escape_text(text: str) -> str:
    """Return a text as it stands between double quotes in Python."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")


def _format_keyword(name: str, value: OptionValue) -> str:
    if name in _BOOLEANS:
        return f"{name}={_BOOLEANS[name]}"
    if isinstance(value, tuple):
        texts = ", ".join(f'"{escape_text(text)}"' for text in value)
        return f"{name}=[{texts}]"
    return f"{name}={value}" if name == "skip" else f'{name}="{escape_text(value)}"'
