"""Kafka: one broker and controller in one KRaft process, or somebody else's, or a container."""

import logging
import signal
import subprocess
from abc import abstractmethod
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.embedded.docker import KAFKA_IMAGE, Container
from holdfast.embedded.errors import EmbeddedError
from holdfast.embedded.jars import ensure_jars
from holdfast.embedded.java import Java
from holdfast.embedded.ports import listens, same_or_free
from holdfast.embedded.server import External, LocalServer, Say, Server

# One broker cannot keep the three copies that Kafka wants of its own topics by default; the rebalance delay is for
# fleets, and would cost every test three seconds; a topic nobody declared is a mistake we want to see.
ONE_BROKER = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # A broker that was killed may not come back before the controller has given its predecessor up: 9 s by default.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    # Fifty and fifty partitions by default, each with files and threads' attention on a small machine.
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}

_LOG4J2 = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n%throwable
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""

_silent = logging.getLogger("holdfast.embedded.kafka.probe")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def answers(bootstrap: str) -> bool:
    """Whether a metadata request is answered and names a broker."""
    # librdkafka would print a line per refused connection; refused is what we expect until it is up.
    client = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 2000}, logger=_silent)
    try:
        return bool(client.list_topics(timeout=2).brokers)
    except KafkaException:
        return False


class KafkaServer(Server):
    """The Kafka of a stack: a server and its address."""

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...


class ExternalKafka(External, KafkaServer):
    def __init__(self, bootstrap: str) -> None:
        super().__init__("Kafka")
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap


class DockerKafka(Container, KafkaServer):
    def __init__(self, folder: Path, say: Say) -> None:
        super().__init__(
            folder,
            say,
            name="kafka",
            image=KAFKA_IMAGE,
            inner_port=19092,
            environment=container_settings,
            answers=lambda port: answers(f"127.0.0.1:{port}"),
        )

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


def container_settings(port: int) -> dict[str, str]:
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:29093",
        # Clients come to the published port, so that is the address the broker must tell them.
        "listeners": "CONTROLLER://:29093,PLAINTEXT://:19092",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        **ONE_BROKER,
    }
    return {"KAFKA_" + key.upper().replace(".", "_"): value for key, value in settings.items()}


class KafkaProcess(LocalServer, KafkaServer):
    """Apache Kafka as our child, from its jars."""

    name = "kafka"
    stop_signal = signal.SIGTERM
    ready_s = 90.0

    def __init__(self, folder: Path, say: Say, java: Java) -> None:
        super().__init__(folder, say)
        self._java = java
        self._home = folder / "kafka"
        self._jars: list[Path] = []
        self._port = 0
        self._controller_port = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def choose_address(self) -> None:
        self._port, self._controller_port = same_or_free(self.folder / "kafka.ports.json", 2)
        self._write_settings()
        if not (self._home / "data" / "meta.properties").exists():
            self._format()

    def command(self) -> list[str]:
        return [*self._jvm("-Xmx512m"), "kafka.Kafka", str(self._home / "server.properties")]

    def answers(self) -> bool:
        # A look at the port first: cheaper than a client, and quiet.
        return listens(self._port) and answers(self.bootstrap)

    def prepare(self) -> None:
        self._home.mkdir(exist_ok=True)
        self._jars = ensure_jars(self.say)

    def _jvm(self, *flags: str) -> list[str]:
        log4j2 = self._home / "log4j2.properties"
        classpath = ":".join(map(str, self._jars))
        properties = [f"-Dlog4j2.configurationFile={log4j2}", f"-Dkafka.logs.dir={self._home}"]
        return [str(self._java.executable), *flags, "-XX:+UseSerialGC", *properties, "-cp", classpath]

    def _write_settings(self) -> None:
        settings = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "log.dirs": str(self._home / "data"),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            **ONE_BROKER,
        }
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (self._home / "server.properties").write_text("".join(lines))
        (self._home / "log4j2.properties").write_text(_LOG4J2.format(log=self.log_file))

    def _format(self) -> None:
        storage = [*self._jvm("-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool"]
        config = f"--config={self._home / 'server.properties'}"
        cluster = subprocess.run([*storage, "random-uuid"], capture_output=True, text=True, check=False)
        command = [*storage, "format", "--standalone", f"--cluster-id={cluster.stdout.strip()}", config]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EmbeddedError(f"Kafka could not format its storage:\n{cluster.stderr}{done.stdout}{done.stderr}")
