"""The adapter around a user's router: what it checks, and where a request goes if the chosen replica is closed."""

from typing import Any

import numpy as np
import pytest

from sim.records import Request
from sim.routing.registered import UserRouter

ANY = Request(0, 0.0, 10, 10)


class Fixed:
    """Router that always answers the same."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def choose(self, request: Request) -> Any:
        return self.answer


class Listening(Fixed):
    """Router that records the calls it receives."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.heard: list[tuple[Any, ...]] = []

    def joined(self, replica: int) -> None:
        self.heard.append(("joined", replica))

    def opened(self, replica: int, outstanding: int) -> None:
        self.heard.append(("opened", replica, outstanding))


@pytest.mark.parametrize("answer", [0, 2, np.int64(1), True])
def test_an_index_is_the_choice(answer: Any) -> None:
    assert UserRouter(Fixed(answer), 3).choose(ANY) == int(answer)


@pytest.mark.parametrize("answer", [-1, 3])
def test_a_replica_that_does_not_exist_is_an_error(answer: int) -> None:
    with pytest.raises(ValueError, match=f"the router chose replica {answer} of 3"):
        UserRouter(Fixed(answer), 3).choose(ANY)


@pytest.mark.parametrize("answer", [1.0, "1", None])
def test_an_answer_that_is_no_index_is_an_error(answer: Any) -> None:
    with pytest.raises(TypeError, match="router Fixed: choose returns the index of a replica, not"):
        UserRouter(Fixed(answer), 3).choose(ANY)


@pytest.mark.parametrize(
    ("closed", "chosen"), [((), 2), ((0,), 2), ((2,), 3), ((2, 3), 0), ((0, 2, 3), 1), ((0, 1, 2, 3), -1)]
)
def test_the_next_open_replica_replaces_a_closed_one(closed: tuple[int, ...], chosen: int) -> None:
    router = UserRouter(Fixed(2), 4)
    for replica in closed:
        router.closed(replica)
    assert router.choose(ANY) == chosen
    for replica in closed:
        router.opened(replica, 0)
    assert router.choose(ANY) == 2


def test_a_router_hears_the_events_that_it_has_methods_for() -> None:
    made = Listening(0)
    router = UserRouter(made, 2)
    router.joined(1, ANY)
    router.closed(1)
    router.opened(1, 5)
    router.left(1, ANY)
    assert made.heard == [("joined", 1), ("opened", 1, 5)]
