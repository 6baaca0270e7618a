"""A list of SQL expressions as users write it, with commas. Pure."""


def parts(text: str) -> tuple[str, ...]:
    """Return the expressions of a text that lists them with commas; those inside brackets and quotes don't count.

    >>> parts("region, to_date(ts, 'a,b')")
    ('region', "to_date(ts, 'a,b')")
    """
    found, depth, quote, start = [], 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and not depth:
            found.append(text[start:at].strip())
            start = at + 1
    return (*found, text[start:].strip())
