"""The error of each pair of GPU and model, for all kinds of validations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.language import _
from sim.report.fidelity.validate.answer import GROUPS
from sim.report.fidelity.validate.training import GROUPS as TRAINING_GROUPS
from sim.report.words.text import percent
from sim.study.fidelity.validate.score import PredictedRow, scores
from sim.study.fidelity.validate.services.predict import ServiceOutcome
from sim.study.fidelity.validate.services.score import service_scores
from sim.study.fidelity.validate.training.score import PredictedTraining
from sim.study.fidelity.validate.training.score import scores as training_scores


@dataclass(frozen=True, slots=True)
class PairError:
    """One quantity of one pair."""

    group: str
    """What shares a colour: a class of rows, a benchmark."""
    quantity: str
    name: str
    """GPU and model."""
    median_error: float
    bias: float | None
    count: int
    """Rows."""

    @property
    def key(self) -> str:
        """The pair in its group: the same in the charts of all quantities."""
        return f"{self.group}/{self.quantity}/{self.name}"

    def rows(self) -> Iterator[tuple[str, str]]:
        """What is shown where somebody points at it."""
        yield _("group"), self.group
        yield _("median error, {quantity}", quantity=self.quantity), percent(self.median_error)
        if self.bias is not None:
            yield _("median signed error"), f"{100 * self.bias:+.0f} %"
        yield _("rows"), str(self.count)


def serving_pairs(outcomes: Sequence[PredictedRow]) -> list[PairError]:
    """Of operating points of serving engines, those with a prediction."""
    found = scores([one for one in outcomes if one.covered], GROUPS["pair"][1])
    return [
        PairError(one.group[0], one.quantity, ", ".join(one.group[1:]), one.median_error, one.bias, one.rows)
        for one in found
    ]


def service_pairs(outcomes: Sequence[ServiceOutcome]) -> list[PairError]:
    """Of services that answer in one pass, by benchmark."""
    found = service_scores(outcomes, lambda one: f"{one.row.benchmark}: {one.gpu}")
    return [
        PairError(one.group.partition(": ")[0], one.metric, one.group, one.median_error, one.bias, one.rows)
        for one in found
    ]


def training_pairs(runs: Sequence[PredictedTraining]) -> list[PairError]:
    """Of training runs."""
    return [
        PairError(one.group[0], one.quantity, ", ".join(one.group[1:]), one.median_error, one.bias, one.rows)
        for one in training_scores(runs, TRAINING_GROUPS["pair"][1])
        if one.median_error is not None
    ]
