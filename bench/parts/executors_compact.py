"""Compaction on the executors of a cluster: one executor and two, against Iceberg's own procedure on Spark; memory."""

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.clustered import Comparison, start_cluster
from bench.figure import Figure
from bench.machine_scaling import measure_machine
from bench.order_files import ANSWER, SCHEMA, link_files, write_files
from bench.peers import CATALOG

BYTES = 1_000_000_000
FILE_BYTES = 8_000_000
LARGER = 10
JOB = """
spark.sql("CREATE TABLE {catalog}.ods.orders ({schema}) USING iceberg")
spark.sql("CALL {catalog}.system.add_files(table => 'ods.orders', source_table => '`parquet`.`{data}`')")
started = time.perf_counter()
options = "map('rewrite-all', 'true', 'target-file-size-bytes', '{target}')"
spark.sql("CALL {catalog}.system.rewrite_data_files(table => 'ods.orders', options => " + options + ")").collect()
"""
TARGET_BYTES = 128 << 20


def run(size: int = BYTES) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    with start_cluster() as cluster, tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        folder = Path(name)
        data, doubled, more = folder / "data", folder / "doubled", folder / "more"
        write_files(data, "parquet", size, max(8, size // FILE_BYTES))
        os.sync()
        link_files(doubled, data, 2)
        link_files(more, data, LARGER)
        label = f"executors: compact {2 * size / 1e6:,.0f} MB"
        figures = [measure_machine(label, sorted(data.iterdir()))]
        comparison = Comparison(
            label,
            cluster,
            folder,
            "",
            JOB.format(data=doubled, schema=SCHEMA, catalog=CATALOG, target=TARGET_BYTES),
            ANSWER,
            operation="compact",
            prepare=f"load ods.orders {doubled}/*.parquet --in-place",
        )
        small, large = (
            replace(
                comparison,
                name=f"executors: compact {size / 1e6:,.0f} MB",
                folder=folder / folder_name,
                prepare=f"load ods.orders {files_folder}/*.parquet --in-place",
            )
            for folder_name, files_folder in (("smaller", data), ("larger", more))
        )
        small.folder.mkdir()
        large.folder.mkdir()
        return [*comparison.measure(has_targets=True), *figures, small.measure_memory(large, LARGER)]


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line(), figure.details)
