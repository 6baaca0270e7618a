"""Access object stores (S3, Google, Azure), configured by `[lake.storage]`, else by the environment.

An object store has a high latency but serves many requests at once, so requests run concurrently over connections that
stay open.
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
MAX_CONCURRENT_REQUESTS = 16
_UNREACHABLE_MARKERS = (
    "NETWORK_CONNECTION",
    "curlCode",
    "resolve host",
    "Connection refused",
    "timed out",
    "SLOW_DOWN",
    "(503)",
)


def run_concurrently(work: Callable[[T], R], arguments: Sequence[T]) -> Iterator[R]:
    """Yield the result for each argument, in order; an error, or closing the iterator, cancels the rest."""
    with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS, thread_name_prefix="runnel-objects") as pool:
        futures = [pool.submit(work, argument) for argument in arguments]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def open_file_system(address: str, storage: Mapping[str, str]) -> "tuple[FileSystem, str]":
    """Return the file system of a URL, and the path of the URL within it."""
    io = _open_file_io(frozenset(storage.items()))
    scheme, netloc, path = io.parse_location(address)
    return io.fs_by_scheme(scheme, netloc), path


def describe_store_error(error: OSError, storage: Mapping[str, str]) -> tuple[str, bool]:
    """Return an error message without any value of a setting, and whether the store may be reachable later."""
    text = str(error).splitlines()[0]
    is_unreachable = any(marker in text for marker in _UNREACHABLE_MARKERS)
    for separator in ("AWS Error ", "; Details: "):  # the text before them repeats the request
        text = text.partition(separator)[2] or text
    for value in storage.values():
        text = text.replace(value, "***") if len(value) > 3 else text
    return text[:300], is_unreachable


@lru_cache(16)
def _open_file_io(storage: frozenset[tuple[str, str]]) -> "PyArrowFileIO":
    """Return the cached FileIO that holds the connections to a store."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(dict(storage))


os.register_at_fork(
    after_in_child=_open_file_io.cache_clear
)  # the threads of a connection exist only in the parent process
