"""Split a comma-separated list of SQL expressions. Pure."""


def split_expressions(text: str) -> tuple[str, ...]:
    """Split a list of expressions at its commas, except for commas inside brackets and quotes.

    >>> split_expressions("region, to_date(ts, 'a,b')")
    ('region', "to_date(ts, 'a,b')")
    """
    expressions, depth, quote, start = [], 0, "", 0
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and not depth:
            expressions.append(text[start:index].strip())
            start = index + 1
    return (*expressions, text[start:].strip())
