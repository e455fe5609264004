"""Task topics lose what was consumed, and nothing else."""

from holdfast.log.protocol import TopicPartition
from holdfast_recovery.trim import Trim
from tests.unit.recovery.doubles import QUEUE, TOPIC, Shop


async def queues() -> list[str]:
    return [QUEUE, "not-made-yet"]


async def start(shop: Shop) -> int:
    first = TopicPartition(TOPIC, 0)
    return (await shop.admin.start_offsets([first]))[first]


async def test_what_is_below_the_committed_offset_goes() -> None:
    shop = Shop()
    for fence in range(1, 11):
        shop.dispatch(QUEUE, fence)
    trim = Trim(queues, shop.admin, records_min=3)
    await trim.step()
    assert await start(shop) == 0  # Nobody has consumed anything.
    shop.commit(7)
    await trim.step()
    assert await start(shop) == 7
    shop.commit(9)
    await trim.step()
    assert await start(shop) == 7  # Two records are not worth a request.


async def test_an_offset_of_an_earlier_topic_deletes_nothing() -> None:
    shop = Shop()
    for fence in range(1, 11):
        shop.dispatch(QUEUE, fence)
    shop.commit(5000)
    await Trim(queues, shop.admin, records_min=1).step()
    assert await start(shop) == 0
