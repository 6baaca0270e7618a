"""A program whose task waits for executors that never come back: prints the error of its run."""

import sys
from pathlib import Path

import runnel as rn
from runnel.errors import RunnelError
from runnel.spark.executors import job_watch


def run_starved(root: Path) -> str:
    """Return the error of a run, which waits for executors for a few seconds only."""
    job_watch.StarvationWatch.__init__.__defaults__ = (3.0,)
    try:
        with rn.open(str(root)) as lake:
            return str(lake.run())
    except RunnelError as error:
        return str(error)


if __name__ == "__main__":
    sys.stdout.write(run_starved(Path(sys.argv[1])))
