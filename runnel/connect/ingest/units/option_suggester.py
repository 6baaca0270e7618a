"""Suggest options for a file of a source where it can be read: the driver opens none of them."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from runnel import temp_dirs
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.ingest.detect.listing import is_object_url
from runnel.connect.ingest.detect.local_files import fetch_objects
from runnel.connect.load.suggest.option_suggestion import suggest_options
from runnel.connect.load.suggest.suggested_options import SuggestedOptions
from runnel.lake.warehouse_files import WarehouseFiles

_MOST_OBJECT_BYTES = 256 << 20  # an object is fetched as a whole


@dataclass(frozen=True)
class OptionSuggester:
    """Suggests the options that a file needs besides those of the request; can be pickled.

    `text_columns` are those that all rows of all files made text.
    """

    request: LoadRequest
    files: WarehouseFiles
    text_columns: Collection[str] = ()

    def __call__(self, file: LocalFile) -> SuggestedOptions:
        """Return the options; none for a large object."""
        if is_object_url(file.path) and file.bytes > _MOST_OBJECT_BYTES:
            return SuggestedOptions()
        with temp_dirs.create_scoped("sample") as folder:
            [local_file] = fetch_objects([file], self.files.storage, Path(folder))
            return suggest_options(replace(self.request, files=(local_file,)), local_file, self.text_columns)
