"""Recovery as a process, on a Kafka of its own: killed in the middle, and left alone by a broker that freezes."""

import asyncio
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from holdfast.contracts.topics import TICKS, required_topics
from holdfast.core.inputs import LeaseExpired
from holdfast.embedded.ports import free_ports
from holdfast.embedded.stack import Stack
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.protocol import TopicSpec
from tests.integration.recovery.support import PARTITIONS, Rows, Ticks, until
from tests.support.folders import open_folder

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

LEASE_S = 3.0


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[Stack]:
    if os.environ.get("HOLDFAST_KAFKA"):
        pytest.skip("freezes the broker, so it needs one of its own")
    with Stack(open_folder("holdfast-test-"), say=lambda _: None, postgres=False, temporary=True) as stack:
        yield stack


@pytest.fixture
async def own_ticks(own_kafka: Stack) -> AsyncIterator[Ticks]:
    """Fresh topics under their real names."""
    admin = KafkaAdmin(KafkaConfig(own_kafka.info.kafka))
    names = [spec.name for spec in required_topics(PARTITIONS)]
    await admin.delete_topics(names)

    async def gone() -> bool:
        return await admin.topic_ids(names) == {}

    await until(gone, "topics of the test before are deleted")
    await admin.create([TopicSpec(spec.name, spec.partitions) for spec in required_topics(PARTITIONS)])
    ticks = Ticks(own_kafka.info.kafka, TICKS)
    yield ticks
    ticks.close()


class Recovery:
    def __init__(self, kafka: str, database: str, log: Path) -> None:
        self.log = log
        [self.port] = free_ports(1)
        settings = {
            "KAFKA": kafka,
            "POSTGRES": database,
            "HEALTH_PORT": self.port,
            "TIMERS_CLAIM_S": 1,
            "TIMERS_PAGE": 50,
            "LEASES_ASK_S": 0.2,
            "KAFKA_TIMEOUT_S": 1,
            "TICKS_EVERY_S": 0.5,
            "DISPATCHES_EVERY_S": 0.5,
        }
        env = os.environ | {f"HOLDFAST_{name}": str(value) for name, value in settings.items()}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast_recovery"], env=env, stdout=out, stderr=out, start_new_session=True
            )

    async def status(self) -> int:
        assert self.process.poll() is None, self.log.read_text()
        return await asyncio.to_thread(self._status)

    def _status(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as answer:
            return answer.code
        except OSError:
            return 0

    async def is_ready(self) -> bool:
        return await self.status() == 200

    async def is_not_ready(self) -> bool:
        return await self.status() == 503

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(40)


@pytest.fixture
def start_recovery(own_kafka: Stack, database: str, tmp_path: Path) -> Iterator[Callable[[], Recovery]]:
    started: list[Recovery] = []

    def start() -> Recovery:
        started.append(Recovery(own_kafka.info.kafka, database, tmp_path / f"recovery-{len(started) + 1}.log"))
        return started[-1]

    yield start
    for recovery in started:
        recovery.stop()


async def test_a_recovery_killed_in_the_middle_loses_no_timer(
    rows: Rows, own_ticks: Ticks, start_recovery: Callable[[], Recovery]
) -> None:
    instances = await rows.instances(3000)
    first = start_recovery()
    await until(first.is_ready, "ready")
    await rows.timers(instances, in_s=0.5)
    await own_ticks.expect(300)
    first.kill()
    before = len(await own_ticks.read())
    start_recovery()

    async def all_there() -> bool:
        return {tick.instance for tick in await own_ticks.read()} == {key for key, _ in instances}

    await until(all_there, "every timer was sent")
    assert before < 3000, "it was not killed in the middle: nothing was shown"


async def test_a_frozen_broker_expires_no_lease(
    own_kafka: Stack, rows: Rows, own_ticks: Ticks, start_recovery: Callable[[], Recovery]
) -> None:
    """Nobody can heartbeat while Kafka is away, and once it is back everybody gets a whole lease to be heard."""
    recovery = start_recovery()
    await until(recovery.is_ready, "ready")
    [(key, partition)] = await rows.instances(1)
    await rows.lease(key, partition, LEASE_S)
    own_kafka.kafka.pause()
    try:
        await until(recovery.is_not_ready, "not ready while Kafka is away")
        await asyncio.sleep(LEASE_S)
    finally:
        own_kafka.kafka.resume()
    await own_ticks.stays_empty(LEASE_S * 0.8)
    [tick, *_] = await own_ticks.expect(1)
    assert isinstance(tick, LeaseExpired)
    assert tick.instance == key
    await until(recovery.is_ready, "ready again")
    assert await asyncio.to_thread(recovery.stop) == 0
