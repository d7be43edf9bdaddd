"""Every record of a question has what commands, Python API and exports read off it."""

import inspect

import pytest
import typer

import sim
from sim.answers.questions import QUESTIONS, Question
from sim.api.questions import QuestionResult
from sim.cli import ORDER, app


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=list(QUESTIONS))
def test_a_question_is_a_command_and_a_function(question: Question) -> None:
    command = typer.main.get_command(app).commands[question.name]  # type: ignore[attr-defined]
    function, result = getattr(sim, question.name), getattr(sim, f"{question.name.capitalize()}Result")
    assert command.help == inspect.cleandoc(str(question.__doc__))
    assert issubclass(result, QuestionResult)
    assert result._asks is question
    assert inspect.signature(function).return_annotation is result
    has_width = {option.name for option in command.params}, inspect.signature(function).parameters
    assert ["relative" in names for names in has_width] == [question.relative_option] * 2


def test_the_help_lists_the_commands_in_order_and_others_last() -> None:
    assert tuple(typer.main.get_command(app).commands)[: len(ORDER)] == ORDER  # type: ignore[attr-defined]


def test_the_stub_and_the_package_offer_the_same_names() -> None:
    from sim.api import public

    assert sorted(sim.__all__) == sorted(public.__all__)
