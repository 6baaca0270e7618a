"""Describe how fast something goes and how long it will take. Pure."""


def format_rate(activity: str, done: int, total: int | None, seconds: float, noun: str = "rows") -> str:
    """Return the progress of an activity after some seconds, with its rate and the remaining time.

    >>> format_rate("reading", 50_000, 200_000, 10.0)
    'reading 50,000 of 200,000 rows, 5,000/s, 0:30 left'
    >>> format_rate("reading", 50_000, None, 10.0), format_rate("checking", 0, None, 2.0)
    ('reading 50,000 rows, 5,000/s', 'checking')
    """
    if not done:
        return activity
    total_text = f" of {total:,}" if total and total >= done else ""
    text = f"{activity} {done:,}{total_text} {noun}"
    if seconds < 1:
        return text
    rate = done / seconds
    remaining_text = f", {format_duration((total - done) / rate)} left" if total and total > done else ""
    return f"{text}, {rate:,.0f}/s{remaining_text}"


def format_duration(seconds: float) -> str:
    """Return a duration as minutes and seconds, or hours.

    >>> format_duration(30), format_duration(75.4), format_duration(7300)
    ('0:30', '1:15', '2:01:40')
    """
    total_seconds = round(seconds)
    hours, remainder = divmod(total_seconds, 3600)
    minutes, remaining_seconds = divmod(remainder, 60)
    return f"{hours}:{minutes:02}:{remaining_seconds:02}" if hours else f"{minutes}:{remaining_seconds:02}"
