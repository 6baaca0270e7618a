"""Fetch Spark's jars now rather than at the first start: `python -m runnel.spark.jvm.fetch_jars`."""

import sys

from runnel.errors import RunnelError
from runnel.spark.jvm.jars import ensure_jars
from runnel.spark.jvm.java_home import find_java


def main() -> int:
    """Fetch the missing jars and return the exit code."""
    try:
        ensure_jars(find_java(), report=_print_line)
    except RunnelError as error:
        _print_line(str(error))
        return error.exit_code
    return 0


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
