"""Parquet read on the executors of a cluster: one executor and two, against a Spark job."""

import sys

from bench.clustered import compare_files
from bench.figure import Figure

BYTES = 800_000_000
SOURCE = 'rn.source("ods.orders", rn.files("{data}/*.parquet", schema="{schema}"))'
JOB = """
rows = spark.read.parquet({data!r})
rows.writeTo("{catalog}.ods.orders").createOrReplace()
"""


def run(size: int = BYTES) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    return compare_files("parquet", size, SOURCE, JOB)


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line(), figure.details)
