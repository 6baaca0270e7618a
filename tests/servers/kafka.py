"""A real Kafka for tests: one node in KRaft mode, from jars of Maven Central, with the Java that Runnel uses.

It listens on loopback: without a password, for the user `ada`, who has one, and, where there is openssl to make a
certificate with, both ways over TLS.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from runnel.spark.jvm.command_line import find_spark_home
from runnel.spark.jvm.jars import ensure_jars
from runnel.spark.jvm.java_home import find_java
from tests.servers.http_server import certificate
from tests.servers.kafka_jars import BROKER, OF_SPARK

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer
    from confluent_kafka.admin import AdminClient

PASSWORD = "ada's secret 4711"
_START_SECONDS = 60
_JVM = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Dlog4j2.level=ERROR")
# Should the tests be killed, their end of the pipe closes, and the broker is killed too.
_WATCHED = 'exec 3<&0; (read -r word <&3; [ "$word" ] || kill -9 $$) & exec "$@" 3<&- </dev/null'
_LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="{password}";'
_TLS = "ssl.keystore.type=PEM\nssl.keystore.location={certificate}"
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{inner}
listeners={listeners},CONTROLLER://127.0.0.1:{inner}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=\
PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_plaintext.plain.sasl.jaas.config={login}
listener.name.sasl_ssl.plain.sasl.jaas.config={login}
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
{tls}
log.dirs={data}
num.network.threads=1
num.io.threads=2
background.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=80000000
controlled.shutdown.enable=false
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.cleaner.backoff.ms=100
log.initial.task.delay.ms=100
log.retention.ms=-1
"""


class Server:
    """A Kafka broker on loopback TCP, ended and removed at the end. It can be killed and started again on its data."""

    def __init__(self) -> None:
        self.port, self.sasl_port, self.ssl_port, self.sasl_ssl_port, inner = _free_ports(5)
        self._home = Path(tempfile.mkdtemp(prefix="runnel-kafka-"))
        self.certificate = certificate(self._home) if shutil.which("openssl") else None
        self._settings = self._home / "server.properties"
        ports = {"PLAINTEXT": self.port, "SASL_PLAINTEXT": self.sasl_port}
        if self.certificate is not None:
            ports |= {"SSL": self.ssl_port, "SASL_SSL": self.sasl_ssl_port}
        self._settings.write_text(
            _SETTINGS.format(
                listeners=",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
                inner=inner,
                login=_LOGIN.format(password=PASSWORD),
                tls=_TLS.format(certificate=self.certificate) if self.certificate else "",
                data=self._home / "data",
            )
        )
        self._java = find_java()
        self._class_path = _class_path(ensure_jars(self._java, BROKER))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Server":
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "A")
        scram = f'SCRAM-SHA-256=[name="ada",password="{PASSWORD}"]'
        words = ("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings), "--add-scram", scram)
        done = subprocess.run(self._command(*words), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Kafka's storage could not be formatted: {done.stdout}{done.stderr}")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()  # nobody will read its data again
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_servers(self) -> str:
        """Where it wants to know who asks: SASL_PLAINTEXT, PLAIN, ada."""
        return f"127.0.0.1:{self.sasl_port}"

    @property
    def ssl_servers(self) -> str:
        """Where it speaks TLS, with `certificate`."""
        return f"127.0.0.1:{self.ssl_port}"

    @property
    def sasl_ssl_servers(self) -> str:
        """Where it speaks TLS and wants to know who asks."""
        return f"127.0.0.1:{self.sasl_ssl_port}"

    @property
    def log(self) -> Path:
        return self._home / "log"

    @cached_property
    def admin(self) -> "AdminClient":
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    @cached_property
    def producer(self) -> "Producer":
        from confluent_kafka import Producer

        # A batch that is sent again on a busy machine must not overtake the next one.
        order = {"enable.idempotence": True}
        return Producer({"bootstrap.servers": self.servers, "log_level": 0, "message.max.bytes": 80_000_000, **order})

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Make a topic, its settings with `_` for `.`, and wait until it can be written to."""
        from confluent_kafka.admin import NewTopic

        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(20)
        self.settle(name, partitions)
        return name

    def settle(self, name: str, partitions: int) -> None:
        """Wait until the broker says that a topic has as many partitions, each with a leader; 0: that there is none."""
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            found = self.admin.list_topics(timeout=10).topics.get(name)
            there = found.partitions.values() if found is not None else ()
            if len(there) == partitions and all(one.leader >= 0 for one in there):
                return
            time.sleep(0.01)
        raise RuntimeError(f"Kafka does not say that {name} has {partitions} partitions")

    def put(self, topic: str, *values: Any, partition: int = 0, **options: Any) -> None:
        """Write messages, texts, bytes, None, or what becomes JSON, and wait until they are there."""
        failed: list[KafkaError] = []
        note = lambda error, _: failed.append(error) if error else None  # noqa: E731
        for value in values:
            raw = value if isinstance(value, bytes | str | None) else json.dumps(value)
            self.producer.produce(topic, raw, partition=partition, on_delivery=note, **options)
        if self.producer.flush(20) or failed:
            raise RuntimeError(f"Kafka did not take what was written to {topic}: {failed[:1]}")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            command = self._command("kafka.Kafka", str(self._settings))
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", *command], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/"
            )
        self._wait()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does. What it has acknowledged is with the system, and there when it starts again."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as watcher:
            watcher.write(b"ended\n")

    def _wait(self) -> None:
        assert self._process is not None
        until = time.monotonic() + _START_SECONDS
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"Kafka did not start:\n{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.02)
        _metadata(self.admin, until)

    def _command(self, *words: str) -> list[str]:
        return [str(self._java.executable), *_JVM, "-cp", self._class_path, *words]


def _class_path(jars: tuple[Path, ...]) -> str:
    home = find_spark_home() / "jars"
    shared = [path for name in OF_SPARK for path in sorted(home.glob(f"{name}*.jar"))]
    return os.pathsep.join(map(str, (*jars, *shared)))


def _answers(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def _metadata(admin: "AdminClient", until: float) -> None:
    """Wait until the broker says that it is one."""
    while not admin.list_topics(timeout=max(1.0, until - time.monotonic())).brokers:
        time.sleep(0.02)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
