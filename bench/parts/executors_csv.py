"""CSV read on the executors of a cluster: one executor and two, against a Spark job; memory for 1 and for 10 GB."""

import sys

from bench.clustered import compare_files
from bench.figure import Figure

BYTES = 1_000_000_000
LARGER = 10
SOURCE = 'rn.source("ods.orders", rn.files("{data}/*.csv", schema="{schema}", multiline=False))'
JOB = """
rows = spark.read.csv({data!r}, schema={schema!r}, header=True, mode="FAILFAST")
rows.writeTo("{catalog}.ods.orders").createOrReplace()
"""


def run(size: int = BYTES) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    return compare_files("csv", size, SOURCE, JOB, times_larger=LARGER)


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line(), figure.details)
