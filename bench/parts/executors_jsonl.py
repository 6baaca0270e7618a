"""JSON lines read on the executors of a cluster: one executor and two, against a Spark job."""

import sys

from bench.clustered import compare_files
from bench.figure import Figure

BYTES = 1_000_000_000
SOURCE = 'rn.source("ods.orders", rn.files("{data}/*.jsonl", schema="{schema}"))'
JOB = """
rows = spark.read.json({data!r}, schema={schema!r}, mode="FAILFAST")
rows.writeTo("{catalog}.ods.orders").createOrReplace()
"""


def run(size: int = BYTES) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    return compare_files("jsonl", size, SOURCE, JOB)


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line(), figure.details)
