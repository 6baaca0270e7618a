"""Find mistakes in expressions of `by_input` that can be told from their text: they need no Spark.

Pure. What only Spark knows, such as unknown columns and functions, is reported by the first run.
"""

import re

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""")
_FUNCTION = re.compile(r"(?<![\w.])(\w+)\s*\(")
_WINDOW = re.compile(r"\)\s*over\b", re.IGNORECASE)
_AGGREGATE_NAMES = """
    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or
    collect_list collect_set corr count count_if covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric kurtosis last last_value listagg max max_by mean median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc skewness some std stddev stddev_pop stddev_samp string_agg sum
    try_avg try_sum var_pop var_samp variance
"""
_GENERATOR_NAMES = "explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack"
_AGGREGATES, _GENERATORS = frozenset(_AGGREGATE_NAMES.split()), frozenset(_GENERATOR_NAMES.split())
_CLOSING = {"(": ")", "[": "]"}


def find_slice_mistake(text: str) -> str | None:
    """Return what is wrong with the expressions of an input, as the end of a sentence; None if nothing is seen.

    >>> find_slice_mistake("max(id)"), find_slice_mistake("to_date(day")
    ('looks at other rows: `max`', 'has a `(` that is not closed')
    >>> find_slice_mistake("date_trunc('max(', last_day(ts))")
    """
    code = _QUOTED.sub("''", text)
    if (problem := _find_unbalanced(code)) is not None:
        return problem
    if _WINDOW.search(code):
        return "looks at other rows: `over`"
    for name in _FUNCTION.findall(code):
        if name.lower() in _AGGREGATES:
            return f"looks at other rows: `{name}`"
        if name.lower() in _GENERATORS:
            return f"puts a row into several slices: `{name}`"
    return None


def _find_unbalanced(code: str) -> str | None:
    """Return which bracket or quote has no counterpart; quoted text was removed before."""
    open_brackets: list[str] = []
    for character in code.replace("''", ""):
        if character in _CLOSING:
            open_brackets.append(character)
        elif character in _CLOSING.values() and (not open_brackets or _CLOSING[open_brackets.pop()] != character):
            return f"has a `{character}` too many"
        elif character in "'\"`":
            return f"has a quote {character} that is not closed"
    return f"has a `{open_brackets[-1]}` that is not closed" if open_brackets else None
