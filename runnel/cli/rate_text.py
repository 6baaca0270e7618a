"""How fast something goes, and how long it will take, in words. Pure."""


def pace(what: str, done: int, total: int | None, seconds: float, noun: str = "rows") -> str:
    """Return how far something is after some seconds.

    >>> pace("reading", 50_000, 200_000, 10.0)
    'reading 50,000 of 200,000 rows, 5,000/s, 0:30 left'
    >>> pace("reading", 50_000, None, 10.0), pace("checking", 0, None, 2.0)
    ('reading 50,000 rows, 5,000/s', 'checking')
    """
    if not done:
        return what
    of = f" of {total:,}" if total and total >= done else ""
    told = f"{what} {done:,}{of} {noun}"
    if seconds < 1:
        return told
    rate = done / seconds
    left = f", {clock((total - done) / rate)} left" if total and total > done else ""
    return f"{told}, {rate:,.0f}/s{left}"


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, or hours.

    >>> clock(30), clock(75.4), clock(7300)
    ('0:30', '1:15', '2:01:40')
    """
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
