"""The bar: a bar on a terminal, plain lines in a log, both shown the same progress."""

import io

from epoch0.progress import ProgressBar, format_duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_at_most_a_line_in_so_many_seconds() -> None:
    often, seldom = io.StringIO(), io.StringIO()
    for stream, every in ((often, 0.0), (seldom, 60.0)):
        bar = ProgressBar("walk", stream, every)
        bar.begin(3)
        for done in range(1, 4):
            bar.show(done, "ignored", lambda done=done: f"{done} of 3")
        bar.line("over")
        bar.end()
        assert not bar.on_terminal
    assert often.getvalue() == "walk: 1 of 3\nwalk: 2 of 3\nwalk: 3 of 3\nwalk: over\n"
    assert seldom.getvalue() == "walk: over\n"


def test_a_terminal_gets_a_bar_and_no_lines() -> None:
    terminal, lines = Terminal(), []
    bar = ProgressBar("walk", terminal)
    bar.begin(8, 2)
    bar.show(5, "layer 2", lambda: lines.append("made") or "")
    bar.line("not on a terminal")
    bar.end()
    shown = terminal.getvalue()
    assert "walk: layer 2" in shown and "5/8" in shown and "not on a terminal" not in shown and not lines


def test_durations_in_the_two_units_that_matter() -> None:
    assert [format_duration(s) for s in (0.4, 59.4, 60, 3599, 3600, 90000)] == [
        "0 s", "59 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "25 h 00 min",
    ]  # fmt: skip
