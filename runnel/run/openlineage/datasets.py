"""Tables as OpenLineage knows them: a name, a version, columns, checks, and how much was written."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attr
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    OutputDatasetFacet,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)

from runnel.lake.iceberg.table_metadata import load

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.plan.facts import Head
    from runnel.run.checks.row_checks import Finding


@attr.define
class VersionFacet(DatasetFacet):
    """The version in Runnel's words; `commit` is null until it is published."""

    branch: str
    metadata_location: str
    content: str
    commit: str | None


def read(store: "Store", namespace: str, branch: str, table: "TableName", head: "Head | None") -> InputDataset:
    """Return a table that was read."""
    return InputDataset(namespace, str(table), facets=_facets(store, branch, head, None))


def outside(names: Iterable[tuple[str, str]]) -> list[InputDataset]:
    """Return what was read from outside the lake."""
    return [InputDataset(namespace, name) for namespace, name in names]


def written(
    store: "Store",
    namespace: str,
    branch: str,
    table: "TableName",
    head: "Head | None",
    commit: str | None,
    rows: int | None = None,
    findings: "Iterable[Finding]" = (),
) -> OutputDataset:
    """Return a table that was written; `rows` are those that are new."""
    facets = _facets(store, branch, head, commit)
    if checked := [_assertion(one) for one in findings]:
        facets["dataQualityAssertions"] = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(checked)  # type: ignore[assignment]
    return OutputDataset(namespace, str(table), facets=facets, outputFacets=_statistics(store, head, rows))


def _facets(store: "Store", branch: str, head: "Head | None", commit: str | None) -> dict[str, DatasetFacet]:
    if head is None:
        return {}
    found: dict[str, DatasetFacet] = {
        "version": dataset_version_dataset.DatasetVersionDatasetFacet(head.location),
        "runnel_version": VersionFacet(branch, head.location, head.content, commit),
        "storage": storage_dataset.StorageDatasetFacet("iceberg", "parquet"),
        "symlinks": symlinks_dataset.SymlinksDatasetFacet([_place(head.location)]),
    }
    with suppress(Exception):  # it may have been swept meanwhile: then its columns are not told
        found["schema"] = schema_dataset.SchemaDatasetFacet(_fields(store, head.location))
    return found


def _fields(store: "Store", location: str) -> list[schema_dataset.SchemaDatasetFacetFields]:
    return [
        schema_dataset.SchemaDatasetFacetFields(field.name, str(field.field_type), field.doc, ordinal_position=at)
        for at, field in enumerate(load(store, location).schema().fields, 1)
    ]


def _place(location: str) -> symlinks_dataset.Identifier:
    """Return where a table's files are, as the OpenLineage of Spark calls it."""
    folder = location.rpartition("/metadata/")[0]
    scheme, found, path = folder.removeprefix("file://").rpartition("://")
    if not found:
        return symlinks_dataset.Identifier("file", path, "LOCATION")
    bucket, _, name = path.partition("/")
    return symlinks_dataset.Identifier(f"{scheme}://{bucket}", name, "LOCATION")


def _statistics(store: "Store", head: "Head | None", rows: int | None) -> dict[str, OutputDatasetFacet]:
    if head is None or rows is None:
        return {}
    summary: Mapping[str, str] = {}
    with suppress(Exception):
        snapshot = load(store, head.location).current_snapshot()
        summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary else {}
    size, files = (summary.get(name) for name in ("added-files-size", "added-data-files"))
    told = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows, _number(size), _number(files))
    return {"outputStatistics": told}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None


def _assertion(one: "Finding") -> data_quality_assertions_dataset.Assertion:
    """Return how a check went. No example of a row: rows that are erased must not live on elsewhere."""
    check = one.check
    return data_quality_assertions_dataset.Assertion(
        check.kind,
        one.failed == 0,
        column=check.columns[0] if len(check.columns) == 1 else None,
        severity="error" if check.on_fail == "stop" else "warn",
        name=check.text,
        actual=str(one.failed),
        expected="0",
        content=check.condition,
        contentType="sql" if check.condition else None,
        params=_params(check.arguments),
    )


def _params(arguments: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(dict(arguments), default=str))
    return found
