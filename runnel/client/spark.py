"""The Spark session of this process, and tables as frames at a fixed version."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:

    pass
