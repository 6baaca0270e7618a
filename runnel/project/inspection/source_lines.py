"""Find the line of a record in a file of a source, if the file still is as it was read."""

from typing import TYPE_CHECKING

from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.declare.model.endpoints import Changes, Files
from runnel.declare.model.flow import log_table_of
from runnel.errors import RunnelError
from runnel.lake.flow_state.ingest_positions import read_processed_files

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.lake.flow_state.ingest_position import SourceRecord
    from runnel.lake.provenance.row_provenance import LineLocator
    from runnel.names import TableName


def make_line_locator(lake: "Lake", at: str) -> "LineLocator":
    """Return a function that finds lines as the project's sources read their files; flow files are loaded on demand."""
    flows: list[Flow | None] = []

    def locate_line(table: "TableName", record: "SourceRecord") -> str | None:
        if not flows:
            flows.append(_load_flow(lake))
        files = _find_files(flows[0], table) if flows[0] is not None else None
        return _read_line(lake, at, table, files, record) if files is not None else None

    return locate_line


def _load_flow(lake: "Lake") -> "Flow | None":
    from runnel.project.planning.plan_project import load_project_flow

    try:
        return load_project_flow(lake)
    except ProjectMistakes:
        return None


def _find_files(flow: "Flow", table: "TableName") -> Files | None:
    """Return the files that fill a table: one of a source, or its change log."""
    for source in flow.sources.values():
        if source.table == table and isinstance(source.origin, Files):
            return source.origin
        is_log = isinstance(source.origin, Changes) and log_table_of(source.table) == table
        if is_log and isinstance(source.origin, Changes) and isinstance(source.origin.origin, Files):
            return source.origin.origin
    return None


def _read_line(lake: "Lake", at: str, table: "TableName", files: Files, record: "SourceRecord") -> str | None:
    from runnel.connect.files.file_patterns import LocalFile
    from runnel.connect.files.format_reader import ReaderOptions
    from runnel.connect.files.open_files import inspect_files, open_reader
    from runnel.connect.files.scratch_files import ScratchFiles
    from runnel.connect.ingest.detect.digests import compute_digest
    from runnel.connect.ingest.detect.listing import ListedSourceFile, is_object_url
    from runnel.connect.ingest.read_request import build_files_request
    from runnel.lake.scan.duckdb_connection import connect_duckdb

    processed_file = read_processed_files(lake.store.db, lake.store.commit(at), table).get(record.path)
    path = lake.settings.root / record.path
    if processed_file is None or is_object_url(record.path) or not path.is_file() or record.record is None:
        return None
    try:
        listed_file = ListedSourceFile(record.path, processed_file.size, processed_file.modified_ns)
        if compute_digest(lake.settings.root, listed_file) != processed_file.sha256:
            return None
        local_file = LocalFile(record.path, str(path), processed_file.size, processed_file.modified_ns / 1e9)
        request = build_files_request(table, files, [local_file])
        with ScratchFiles() as scratch, connect_duckdb() as connection:
            readable_files, _ = inspect_files(connection, request, scratch)
            if not readable_files:
                return None
            options = ReaderOptions(tuple(column.name for column in request.schema))
            reader = open_reader(connection, request, readable_files, scratch, options)
            return reader.locate_rows(readable_files[0], [record.record]).get(record.record)
    except RunnelError:
        return None
