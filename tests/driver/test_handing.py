"""Which visits share a statement."""

from __future__ import annotations

from cerebro_db.driver.handing import SHARED_SECONDS, Handing
from cerebro_db.planning.dispatch import Dispatcher
from cerebro_db.planning.orders import Visit

EVERYONE = range(1, 9)


def waiting(count: int = 8) -> Dispatcher:
    """Configurations that wait for partition 5."""
    dispatcher = Dispatcher(1, dict.fromkeys(range(1, count + 1), 1.0))
    dispatcher.add_visits(Visit(mst_key, 0, 0, 5) for mst_key in range(1, count + 1))
    return dispatcher


def handing(dispatcher: Dispatcher, seconds: float, most: int = 16) -> Handing:
    found = Handing(dispatcher, lambda worker, partition: worker == 0, most, dispatcher.finished)
    for mst_key in EVERYONE:
        found.took(mst_key, seconds)
    return found


def keys(visits: tuple[Visit, ...]) -> list[int]:
    return [visit.mst_key for visit in visits]


def test_short_hops_share_a_statement() -> None:
    found = handing(waiting(), SHARED_SECONDS / 4)
    assert keys(found.next(0, [5], [], EVERYONE)) == [1, 2, 3, 4]


def test_they_take_no_longer_than_they_may() -> None:
    assert keys(handing(waiting(), 0.4 * SHARED_SECONDS).next(0, [5], [], EVERYONE)) == [1, 2]
    assert keys(handing(waiting(), 0.6 * SHARED_SECONDS).next(0, [5], [], EVERYONE)) == [1]


def test_a_server_says_how_many_a_statement_may_make() -> None:
    assert keys(handing(waiting(), 0.001, most=3).next(0, [5], [], EVERYONE)) == [1, 2, 3]
    assert keys(handing(waiting(), 0.001, most=1).next(0, [5], [], EVERYONE)) == [1]


def test_what_is_not_in_memory_is_read_for_one() -> None:
    assert keys(handing(waiting(), 0.001).next(0, [], [], EVERYONE)) == [1]


def test_a_first_hop_is_made_alone() -> None:
    dispatcher = waiting()
    found = Handing(dispatcher, lambda worker, partition: True, 16, dispatcher.finished)
    for mst_key in EVERYONE[:-1]:
        assert keys(found.next(0, [5], [], EVERYONE)) == [mst_key]
        found.took(mst_key, 0.001)


def test_nothing_shares_a_statement_where_a_hop_is_long() -> None:
    """The one that decides when the run ends may wait for the partition next."""
    dispatcher = waiting()
    found = handing(dispatcher, 0.001)
    found.took(8, 2 * SHARED_SECONDS)
    assert keys(found.next(0, [5], [], EVERYONE)) == [1]
    dispatcher.drop(8)  # it has ended, and waits for nothing
    assert keys(found.next(0, [5], [], EVERYONE)) == [2, 3, 4, 5, 6, 7]


def test_those_of_a_statement_that_failed_are_made_one_by_one() -> None:
    dispatcher = waiting(3)
    found = handing(dispatcher, 0.001)
    together = found.next(0, [5], [3], EVERYONE)
    assert keys(together) == [1, 2]
    found.one_by_one(together)
    assert found.next_alone(1, EVERYONE) is None  # another worker, which does not serve it
    assert keys(found.next(0, [5], [], EVERYONE)) == [1]
    # The other one has ended meanwhile: its visit is done with.
    assert keys(found.next(0, [5], [], [1, 3])) == [3]
    assert dispatcher.remaining == 2
