"""The switch by which tests search capacities and prices with as few simulations and bills as an answer needs."""

from collections.abc import Callable
from typing import Any

from sim.answers.questions import Task
from sim.scenario.sections.precision import FIRST_REPLICATIONS
from sim.study import breakeven, breakeven_costs, capacity

BRACKET = 0.2
"""Least width of the last bracket in the search for the capacity of an answer, as a fraction of the capacity."""
_init = Task.__init__


def _init_coarsely(task: Task, *inputs: Any, **more: Any) -> None:
    _init(task, *inputs, **more)
    object.__setattr__(task, "relative", max(task.relative, BRACKET))


def answer_coarsely(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Make the answers of this process coarse: most tests need any capacity, curve or tipping point.

    A capacity is that of the stated horizon and of few replications and loads, costs are simulated at three
    utilisations, and a tipping point is known to one part in ten thousand. *put* sets an attribute; that of a
    MonkeyPatch undoes it.
    """
    put(Task, "__init__", _init_coarsely)
    put(capacity, "can_be_lengthened", lambda _: False)
    put(capacity, "MOST_OF_CAPACITY", FIRST_REPLICATIONS)
    put(breakeven_costs, "UTILISATIONS", (0.15, 0.5, 1.0))
    put(breakeven, "LOADS_SHOWN", 12)
    put(breakeven, "HALVINGS", 12)
