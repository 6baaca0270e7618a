"""Object stores: S3, Google's, Azure's, as `[lake.storage]` says how to reach them, else as the environment does.

A store takes its time to answer, but answers many at once, so several objects are asked for at a time, over connections
that stay open.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyiceberg.io.pyarrow import PyArrowFileIO

T = TypeVar("T")
R = TypeVar("R")
AT_ONCE = 16
_AWAY = ("NETWORK_CONNECTION", "curlCode", "resolve host", "Connection refused", "timed out", "SLOW_DOWN", "(503)")


def at_once(work: Callable[[T], R], words: Sequence[T]) -> Iterator[R]:
    """Yield what is made of each word, in their order; what fails, or whoever stops asking, ends the rest."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="runnel-objects") as pool:
        doing = [pool.submit(work, word) for word in words]
        try:
            for one in doing:
                yield one.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def system_of(address: str, storage: Mapping[str, str]) -> "tuple[FileSystem, str]":
    """Return what reads and writes an address, and how it calls it."""
    io = _io(frozenset(storage.items()))
    scheme, netloc, path = io.parse_location(address)
    return io.fs_by_scheme(scheme, netloc), path


def said(error: OSError, storage: Mapping[str, str]) -> tuple[str, bool]:
    """Return what a store said, without any value of a setting, and whether it may be there later."""
    text = str(error).splitlines()[0]
    is_away = any(word in text for word in _AWAY)
    for opening in ("AWS Error ", "; Details: "):  # before them stands what was asked, which people know
        text = text.partition(opening)[2] or text
    for value in storage.values():
        text = text.replace(value, "***") if len(value) > 3 else text
    return text[:300], is_away


@lru_cache(16)
def _io(storage: frozenset[tuple[str, str]]) -> "PyArrowFileIO":
    """Return what keeps the connections to a store."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(dict(storage))


os.register_at_fork(after_in_child=_io.cache_clear)  # the threads of a connection stay with the parent
