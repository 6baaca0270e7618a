r"""Make characters visible that a terminal would obey or hide, such as `\x1b`, in text for people.

Data, file names and messages of other systems may contain them: an escape sequence clears the screen or writes to the
clipboard, a bidirectional override lets `gpj.exe` look like `exe.jpg`, and two names may differ in what nobody sees.
"""

import re

# Joiners stay between letters of the scripts that need them, and between emoji.
_JOINED = "\u0590-\u109f\u1780-\u18af\u2600-\u27bf\ufe0f\U0001f000-\U0001faff"
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters, except line end and tab
    "|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # direction of the text
    "|[\xad\u034f\u115f\u1160\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]"
    f"|(?<![{_JOINED}])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}])"
    "|[\ud800-\udfff\U000e0000-\U000e007f]"  # bytes of file names that are no text, and tags
)
_LINE_CHARACTERS = re.compile("[\t\n]")
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def show_invisible(text: str) -> str:
    r"""Return text with control characters and invisible ones written as in a string; line ends and tabs stay.

    >>> print(show_invisible("a\x1b[2Jb\r"), show_invisible("x\u202ey\u200b"))
    a\x1b[2Jb\r x\u202ey\u200b
    """
    return text if text.isascii() and text.isprintable() else _INVISIBLE.sub(_escape, text)


def show_on_one_line(text: str) -> str:
    r"""Return text on one line: line ends and tabs are written as in a string, too.

    >>> print(show_on_one_line("a\nb\tc"))
    a\nb\tc
    """
    return _LINE_CHARACTERS.sub(_escape, show_invisible(text))


def _escape(match: re.Match[str]) -> str:
    character, code = match[0], ord(match[0])
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
