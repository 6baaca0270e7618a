"""Provide a lake with its Spark session: start it on first use, share it with another lake, drop it once it ended."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from runnel.declare.settings import Settings


class SparkProvider:
    """The Spark session of a lake, if it was started. Imports Spark only to start it.

    `once` says that the process ends after one operation, as a command does. `report` is called with a line for the
    user before a slow operation, such as the first download.
    """

    def __init__(
        self, settings: "Settings", report: "Callable[[str], None] | None" = None, *, once: bool = False
    ) -> None:
        self._settings = settings
        self._report = report
        self.once = once
        self._session: SparkSession | None = None

    @property
    def session(self) -> "SparkSession | None":
        """Return the session if it was started or passed in; its process may have ended meanwhile."""
        return self._session

    def get(self, *, brief: bool = False) -> "SparkSession":
        """Return the session, started on first use.

        `brief` is for a process that computes little and then ends: Java starts without its optimising compiler.
        """
        session = self._session
        if session is None:
            from runnel.project.spark_session import open_spark_session

            session = open_spark_session(self._settings, self._report, brief=brief, user=self)
            self._session = session
        return session

    def replace(self, session: "SparkSession") -> None:
        """Provide a session that was started elsewhere in this process."""
        self._session = session

    def drop(self) -> bool:
        """Forget the session without stopping it, so that `get` starts one; return whether there was one."""
        session, self._session = self._session, None
        return session is not None

    def close(self) -> None:
        """Forget the session; another lake of this process may start one with other settings then."""
        if self.drop():
            from runnel.spark.session import leave_spark

            leave_spark(self)
