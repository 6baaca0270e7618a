"""Turn exceptions of a stream into errors that a user can act on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Mistake, RunnelError
from runnel.run.errors import task_errors
from runnel.run.errors.stream_limits import find_stream_limit
from runnel.run.errors.user_code_lines import locate_error

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.run.stream.batch_publisher import BatchPublisher

_OTHER_STATE = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_STATE_SCHEMA",
    "STATE_STORE_VALUE_SCHEMA_EVOLUTION",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "Provided schema doesn't match to the schema for existing state",
    "There are [",  # sources in the checkpoint, and another number in the query
)
_COMPUTED = "must be executed with writeStream"
_FILE_MISSING = (
    "java.io.FileNotFoundException",
    "NotFoundException: Failed to open input stream",
    "File does not exist",
)
_LOST = ("Cannot load current offset at snapshot", "is not an ancestor of", "Cannot find a parent snapshot")


@contextmanager
def raise_stream_errors(task: "Task", root: Path, publisher: "BatchPublisher | None" = None) -> Iterator[None]:
    """Raise the exceptions of the block as errors that a user can act on."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        cause = publisher.error if publisher is not None and publisher.error is not None else error
        raise _to_stream_error(cause, task, root) from error


@contextmanager
def refuse_computed_stream(task: "Task") -> Iterator[None]:
    """Refuse a task that computes rows of a stream eagerly, such as by count() or collect()."""
    try:
        yield
    except RunnelError as error:
        if _COMPUTED not in str(error.__cause__ or error):
            raise
        what = f"task `{task.table}` counts or collects the rows of a stream, which never ends"
        fix = "return a frame that is made from it, without collect, count, show or toPandas"
        raise Mistake("STREAM_COMPUTED", what, at=error.at or str(task.place), fix=fix) from error


def _to_stream_error(error: BaseException, task: "Task", root: Path) -> BaseException:
    if isinstance(error, RunnelError):
        return error
    text, reset = str(error), f"start it again from the beginning: runnel stream reset {task.table}"
    if any(sign in text for sign in _OTHER_STATE):
        what = f"the stored state of `{task.table}` no longer fits its code: {_read_first_line(text)}"
        return RunnelError("STREAM_OTHER_STATE", what, at=str(task.place), fix=f"undo the change, or {reset}")
    if any(sign in text for sign in _LOST):
        what = f"`{task.table}` was at a position that its append log no longer has"
        return RunnelError("STREAM_TAPE_LOST", what, at=str(task.place), fix=reset)
    if any(sign in text for sign in _FILE_MISSING):
        what = f"a file that the stream of `{task.table}` has still to read is gone"
        fix = f"run it again: it continues if rows were erased meanwhile; else {reset}"
        return RunnelError("STREAM_FILE_GONE", what, at=str(task.place), fix=fix)
    if type(error).__name__ == "AnalysisException" and (limit := find_stream_limit(text)) is not None:
        what, fix = f"task `{task.table}` {limit[0]}", limit[1]
        return Mistake("STREAM_UNSUPPORTED", what, at=locate_error(error, text, task, root), fix=fix)
    return task_errors.to_task_error(error, task, root)


def _read_first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]
