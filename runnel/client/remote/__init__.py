"""A lake behind a service, asked over HTTP: no Spark, no database and no project in this process."""

from runnel.client.remote.lake import RemoteLake

__all__ = ["RemoteLake"]
