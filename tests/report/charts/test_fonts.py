"""Pictures from several threads: settings of matplotlib are those of the process."""

import threading

import matplotlib as mpl

from sim.report.charts.fonts import SETTINGS, glyphs, settings, shortened


def test_threads_do_not_leave_their_settings_to_one_another() -> None:
    usual = {name: mpl.rcParams[name] for name in SETTINGS}
    drawing, goes_on = threading.Event(), threading.Event()

    def first() -> None:
        with settings():
            drawing.set()
            goes_on.wait(5)

    def second() -> None:
        with settings():  # takes down what is set when it begins, and restores that at its end
            goes_on.set()

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert drawing.wait(5)
    threads[1].start()
    assert not goes_on.wait(0.1), "the second draws while the first does"
    goes_on.set()
    for thread in threads:
        thread.join(5)
    assert {name: mpl.rcParams[name] for name in SETTINGS} == usual


def test_texts_are_cut_where_they_do_not_fit() -> None:
    assert shortened("hardware price", 14) == "hardware price"
    assert shortened("hardware price", 10) == "hardware…"
    assert glyphs(shortened("四块显卡的硬件价格", 8)) <= 8
