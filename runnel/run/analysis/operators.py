"""Classify the operators and functions of Spark's plans, with the names that users know. Pure."""

LITERAL = ("LocalRelation", "Range", "OneRowRelation")
# Leaves that stand for rows of the same query: of a common table expression, and of the last round of a recursive one.
CTE_REFERENCES = ("CTERelationRef", "UnionLoopRef")
# Operators that make each output row from one input row.
ROWWISE = frozenset(
    (
        "Project",
        "Filter",
        "SubqueryAlias",
        "View",
        "Sort",
        "Generate",
        "Union",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "ResolvedHint",
        "WithCTE",
        "CTERelationDef",
        "CTERelationRef",
        "CollectMetrics",
        "Expand",
        "EventTimeWatermark",
        "PipeOperator",
    )
)
# Operators that pass groups of rows to a function, with the grouping field for each child. If the field is a number, it
# is the number of leading columns of the child.
GROUPED = {
    "FlatMapGroupsInArrow": ("groupingAttributes",),
    "FlatMapGroupsInPandas": ("groupingAttributes",),
    "FlatMapCoGroupsInArrow": ("leftGroupingLen", "rightGroupingLen"),
    "FlatMapCoGroupsInPandas": ("leftGroupingLen", "rightGroupingLen"),
}
NAMES = {
    "Aggregate": "aggregate",
    "AsOfJoin": "join",
    "Deduplicate": "distinct",
    "Distinct": "distinct",
    "Except": "except",
    "FlatMapCoGroupsInArrow": "applyInArrow",
    "FlatMapCoGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapGroupsInPandas": "applyInPandas",
    "GlobalLimit": "limit",
    "Intersect": "intersect",
    "Join": "join",
    "LateralJoin": "join",
    "LocalLimit": "limit",
    "MapInArrow": "mapInArrow",
    "MapInPandas": "mapInPandas",
    "Offset": "offset",
    "Sample": "sample",
    "Tail": "tail",
    "Window": "window",
}
NONDETERMINISTIC = {
    "CallMethodViaReflection": "reflect",
    "CurrentCatalog": "current_catalog",
    "CurrentDatabase": "current_database",
    "CurrentDate": "current_date",
    "CurrentTime": "current_time",
    "CurrentTimeZone": "current_timezone",
    "CurrentTimestamp": "current_timestamp",
    "CurrentUser": "current_user",
    "InputFileBlockLength": "input_file_block_length",
    "InputFileBlockStart": "input_file_block_start",
    "InputFileName": "input_file_name",
    "LocalTimestamp": "localtimestamp",
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "Now": "now",
    "Rand": "rand",
    "RandStr": "randstr",
    "Randn": "randn",
    "Shuffle": "shuffle",
    "SparkPartitionID": "spark_partition_id",
    "TryReflect": "try_reflect",
    "Uniform": "uniform",
    "Uuid": "uuid",
}
CLOCK_FUNCTIONS = ("current_date", "current_time", "current_timestamp", "localtimestamp", "now")
# Iceberg's columns about where a row is stored, which compaction changes.
STORAGE = ("_file", "_pos", "_spec_id", "_partition", "_deleted")
