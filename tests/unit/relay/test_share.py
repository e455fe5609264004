"""How many partitions a relay takes, keeps and gives away."""

from holdfast.store.postgres_relays import Shares
from holdfast_relay.share import Share


class Told:
    def __init__(self, shares: Shares) -> None:
        self.now = shares

    async def shares(self) -> Shares:
        return self.now


async def test_a_relay_alone_takes_everything() -> None:
    fair = await Share(Told(Shares(free=8, by_relays=0, relays=1)), 5.0).look()
    assert fair.may_claim(0)
    assert fair.most == 8


async def test_two_relays_take_half_each_and_the_odd_one_is_somebodys() -> None:
    fair = await Share(Told(Shares(free=7, by_relays=0, relays=2)), 5.0).look()
    assert fair.most == 4
    assert not fair.may_claim(4)


async def test_who_has_too_much_gives_away_when_nothing_is_free() -> None:
    share = Share(Told(Shares(free=0, by_relays=8, relays=2)), 5.0)
    assert (await share.look()).give_away(8) == 4
    assert (await share.look()).give_away(4) == 0
    some_free = Share(Told(Shares(free=4, by_relays=4, relays=2)), 5.0)
    assert (await some_free.look()).give_away(8) == 0


async def test_what_stays_free_for_a_whole_lease_is_taken_whatever_the_share_says() -> None:
    now = [100.0]
    told = Told(Shares(free=4, by_relays=4, relays=2))  # The other one is frozen: counted, and taking nothing.
    share = Share(told, 5.0, clock=lambda: now[0])
    assert not (await share.look()).may_claim(4)
    now[0] += 4.9
    assert not (await share.look()).may_claim(4)
    now[0] += 0.2
    assert (await share.look()).may_claim(4)


async def test_partitions_of_coordinators_are_nobodys_share() -> None:
    fair = await Share(Told(Shares(free=0, by_relays=0, relays=1)), 5.0).look()
    assert not fair.may_claim(0)
    assert fair.give_away(0) == 0
