"""Describe tables as OpenLineage datasets: name, version, columns, checks, and output statistics."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
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

from runnel.lake.iceberg.table_metadata import load_metadata

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.model.table_version import TableVersion
    from runnel.names import TableName
    from runnel.run.checks.row_checks import CheckFinding


@attr.define
class VersionFacet(DatasetFacet):
    """Runnel's own facts about a version; `commit` is null until it is published."""

    branch: str
    metadata_location: str
    content: str
    commit: str | None


def make_external_inputs(names: Iterable[tuple[str, str]]) -> list[InputDataset]:
    """Return the datasets that were read from outside the lake."""
    return [InputDataset(namespace, name) for namespace, name in names]


@dataclass(frozen=True)
class LakeDatasets:
    """Describe the tables of a branch as datasets of a namespace."""

    store: "Store"
    namespace: str
    branch: str

    def make_input(self, table: "TableName", head: "TableVersion | None") -> InputDataset:
        """Return the dataset of a table that was read."""
        facets = _build_facets(self.store, self.branch, head, None)
        return InputDataset(self.namespace, str(table), facets=facets)

    def make_output(
        self,
        table: "TableName",
        head: "TableVersion | None",
        commit: str | None,
        rows: int | None = None,
        findings: "Iterable[CheckFinding]" = (),
    ) -> OutputDataset:
        """Return the dataset of a table that was written; `rows` counts the new rows."""
        facets = _build_facets(self.store, self.branch, head, commit)
        if assertions := [_build_assertion(finding) for finding in findings]:
            assertions_facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions)
            facets["dataQualityAssertions"] = assertions_facet  # type: ignore[assignment]
        statistics = _build_statistics(self.store, head, rows)
        return OutputDataset(self.namespace, str(table), facets=facets, outputFacets=statistics)


def _build_facets(
    store: "Store", branch: str, head: "TableVersion | None", commit: str | None
) -> dict[str, DatasetFacet]:
    if head is None:
        return {}
    facets: dict[str, DatasetFacet] = {
        "version": dataset_version_dataset.DatasetVersionDatasetFacet(head.location),
        "runnel_version": VersionFacet(branch, head.location, head.content, commit),
        "storage": storage_dataset.StorageDatasetFacet("iceberg", "parquet"),
        "symlinks": symlinks_dataset.SymlinksDatasetFacet([_locate_files(head.location)]),
    }
    with suppress(Exception):  # gc may have removed it meanwhile; then its columns are left out
        facets["schema"] = schema_dataset.SchemaDatasetFacet(_list_fields(store, head.location))
    return facets


def _list_fields(store: "Store", location: str) -> list[schema_dataset.SchemaDatasetFacetFields]:
    return [
        schema_dataset.SchemaDatasetFacetFields(field.name, str(field.field_type), field.doc, ordinal_position=position)
        for position, field in enumerate(load_metadata(store, location).schema().fields, 1)
    ]


def _locate_files(location: str) -> symlinks_dataset.Identifier:
    """Return the location of a table's files, named as Spark's OpenLineage integration names it."""
    folder = location.rpartition("/metadata/")[0]
    scheme, separator, path = folder.removeprefix("file://").rpartition("://")
    if not separator:
        return symlinks_dataset.Identifier("file", path, "LOCATION")
    bucket, _, name = path.partition("/")
    return symlinks_dataset.Identifier(f"{scheme}://{bucket}", name, "LOCATION")


def _build_statistics(store: "Store", head: "TableVersion | None", rows: int | None) -> dict[str, OutputDatasetFacet]:
    if head is None or rows is None:
        return {}
    summary: Mapping[str, str] = {}
    with suppress(Exception):
        snapshot = load_metadata(store, head.location).current_snapshot()
        summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary else {}
    size, files = (summary.get(name) for name in ("added-files-size", "added-data-files"))
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rows, _to_int(size), _to_int(files)
    )
    return {"outputStatistics": statistics}


def _to_int(text: str | None) -> int | None:
    return int(text) if text is not None else None


def _build_assertion(finding: "CheckFinding") -> data_quality_assertions_dataset.Assertion:
    """Return the result of a check. No example of a row: erased rows must not survive elsewhere."""
    check = finding.check
    return data_quality_assertions_dataset.Assertion(
        check.kind,
        finding.failed == 0,
        column=check.columns[0] if len(check.columns) == 1 else None,
        severity="error" if check.on_fail == "stop" else "warn",
        name=check.text,
        actual=str(finding.failed),
        expected="0",
        content=check.condition,
        contentType="sql" if check.condition else None,
        params=_to_json_params(check.arguments),
    )


def _to_json_params(arguments: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    params: dict[str, Any] = json.loads(json.dumps(dict(arguments), default=str))
    return params
