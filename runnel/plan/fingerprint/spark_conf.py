"""Find the Spark settings of a project that affect query results, such as the session's time zone. Pure.

A setting of `spark.sql` counts unless it is listed as changing only how a query is executed.
"""

from collections.abc import Iterator, Mapping

_PREFIX = "spark.sql."
# Defaults of settings: setting the same value explicitly changes no fingerprint.
_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
}
# Settings of how a query is executed: planning, shuffles, files, memory, display, and where tables are.
_EXECUTION_SETTINGS = (
    "adaptive.", "autoBroadcastJoinThreshold", "bloomFilter", "broadcastTimeout", "bucketing.", "cache.",
    "cartesianProductExec.", "catalog.", "catalogImplementation", "cbo.", "codegen.", "columnVector.", "debug.",
    "defaultCatalog", "event.", "exchange.", "execution.arrow.", "execution.broadcastHashJoin.",
    "execution.pythonUDF.arrow.concurrency", "execution.rangeExchange.", "execution.reuseSubquery",
    "execution.topKSortFallbackThreshold", "execution.useObjectHashAggregateExec", "files.", "hive.metastore",
    "iceberg.", "inMemoryColumnarStorage.", "inMemoryTableScanStatistics.", "join.", "leafNodeDefaultParallelism",
    "limit.", "maxMetadataStringLength", "maxPlanStringLength", "maxSinglePartitionBytes", "objectHashAggregate.",
    "optimizer.", "orc.compression.codec", "parquet.compression.codec", "parquet.enable", "parquet.filterPushdown",
    "planChangeLog.", "redaction.", "requireAllClusterKeys", "resultQueryStage.", "shuffle.", "shuffleExchange.",
    "shuffledHashJoin", "sort.", "sortMergeJoin", "sources.parallelPartitionDiscovery.", "sources.v2.",
    "statistics.", "streaming.", "thriftServer.", "ui.", "warehouse.dir", "window.", "windowExec.",
)  # fmt: skip


def iter_deciding_settings(conf: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the settings that affect the results of queries, sorted by name.

    >>> list(iter_deciding_settings({"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.shuffle.partitions": "8"}))
    [('spark.sql.session.timeZone', 'Asia/Tokyo')]
    >>> list(iter_deciding_settings({"spark.sql.session.timeZone": "UTC", "spark.driver.memory": "4g"}))
    []
    """
    for name in sorted(conf):
        is_execution_only = not name.startswith(_PREFIX) or name.removeprefix(_PREFIX).startswith(_EXECUTION_SETTINGS)
        if not is_execution_only and conf[name].lower() != _DEFAULTS.get(name, "").lower():
            yield name, conf[name]
