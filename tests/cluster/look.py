"""Look at a project as its users do: rows, bad rows, positions of sources, and what sinks delivered."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import sqlalchemy as sa

import runnel as rn
from runnel.lake.flow_state.ingest_positions import read_position
from runnel.lake.history.refs import read_head
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from tests.cluster.shop import Shop


def describe_project(root: Path, shop: "Shop") -> dict[str, Any]:
    """Return everything that must be equal in two projects with the same inputs."""
    facts: dict[str, Any] = {}
    with rn.open(str(root)) as lake:
        for name in lake.tables():
            rows = lake.query(f"select * from {name}", engine="duckdb").table()
            if name.startswith("quarantine."):
                rows = rows.select([column for column in rows.column_names if column not in ("at", "run")])
            facts[name] = (str(rows.schema), sorted(map(repr, rows.to_pylist())))
            facts[f"position of {name}"] = _describe_position(lake, name)
    exported = ds.dataset(root / "export" / "orders", format="parquet", partitioning="hive", exclude_invalid_files=True)
    facts["export"] = sorted(map(repr, exported.to_table().to_pylist()))
    with shop.database.connect() as connection:
        for table_name in ("day", "customers"):
            found = connection.execute(sa.text(f"select * from {root.name}_{table_name}"))
            facts[f"sink {table_name}"] = sorted(repr(tuple(row)) for row in found)
    facts["sink people"] = _read_last_messages(shop, f"{root.name}_people")
    return facts


def _describe_position(lake: "Lake", table: str) -> list[str]:
    """Return which files were read, or the state; names of data files differ."""
    position = lake.store.db.read(
        lambda connection: read_position(connection, read_head(connection, "main"), TableName.parse(table))
    )
    return sorted(
        repr((file.path, file.size, file.sha256, file.identity, file.is_removed, file.is_incomplete, file.state))
        for file in position.values()
    )


def _read_last_messages(shop: "Shop", topic: str) -> dict[str, Any]:
    """Return the last message of each key: a delivery that is repeated sends its messages again."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": shop.kafka.servers, "group.id": "look", "enable.auto.commit": False})
    messages: dict[str, Any] = {}
    try:
        for partition in range(2):
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
            consumer.assign([TopicPartition(topic, partition, 0)])
            read = 0
            while read < high:
                for message in consumer.consume(min(1000, high - read), timeout=10):
                    value = message.value()
                    messages[str(message.key())] = json.loads(value) if value is not None else None
                    read += 1
    finally:
        consumer.close()
    return messages
