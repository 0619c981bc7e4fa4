"""Figures of benchmarks: the form of `RESULT` lines and of the JSON file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.results import Figure, add_json_option, read_figures, report


@pytest.mark.parametrize(
    ("figure", "line"),
    [
        (Figure("rate", 18_543.2, "events/s", 45_000, at_least=True), "RESULT rate 18543 events/s 45000 missed"),
        (Figure("rate", 45_000, "events/s", 45_000, at_least=True), "RESULT rate 45000 events/s 45000 met"),
        (Figure("ratio", 1.1999, "ratio", 1.2), "RESULT ratio 1.20 ratio 1.2 met"),
        (Figure("seconds", 0.012345, "s"), "RESULT seconds 0.0123 s - -"),
        (Figure("seconds", 0.0, "s", 8.0), "RESULT seconds 0.00 s 8 met"),
        (Figure("seconds", 999.7, "s", 1000), "RESULT seconds 1000 s 1000 met"),
        (Figure("change", -12.345, "s"), "RESULT change -12.3 s - -"),
    ],
)
def test_line_of_a_figure(figure: Figure, line: str) -> None:
    assert figure.line == line


@pytest.mark.parametrize("distance", [1.0, 4e-4, 4e-7, 4e-12, 4.5e-16])
@pytest.mark.parametrize("target", [2.0, 26_000.0])
@pytest.mark.parametrize("at_least", [False, True])
def test_the_printed_value_does_not_contradict_the_verdict(distance: float, target: float, at_least: bool) -> None:
    for value in (target * (1 - distance), target, target * (1 + distance)):
        _, _, text, _, printed_target, verdict = Figure("x", value, "s", target, at_least).line.split()
        assert float(printed_target) == target
        for number in (value, float(text)):
            is_met = number >= target if at_least else number <= target
            assert verdict == ("met" if is_met else "missed"), (value, text)


@pytest.mark.parametrize(
    ("name", "value", "unit"),
    [
        ("two words", 1.0, "s"),
        ("Upper", 1.0, "s"),
        ("", 1.0, "s"),
        ("x", 1.0, "CPU s"),
        ("x", 1.0, ""),
        ("x", float("nan"), "s"),
        ("x", float("inf"), "s"),
    ],
)
def test_an_invalid_figure_is_rejected(name: str, value: float, unit: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        Figure(name, value, unit)


def test_figures_are_printed_and_written_as_a_json_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = [Figure("rate", 50_000.25, "events/s", 45_000, at_least=True), Figure("seconds", 1.5, "s")]
    report(figures, None)
    file = tmp_path / "figures.json"
    report(figures, file)
    lines = "RESULT rate 50000 events/s 45000 met\nRESULT seconds 1.50 s - -\n"
    assert capsys.readouterr().out == 2 * lines
    assert json.loads(file.read_text()) == [
        {"name": "rate", "value": 50_000.25, "unit": "events/s", "target": 45_000, "at_least": True},
        {"name": "seconds", "value": 1.5, "unit": "s", "target": None, "at_least": False},
    ]
    assert read_figures(file) == figures


def test_json_needs_a_folder_that_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_json_option(parser)
    assert parser.parse_args([]).json is None
    assert parser.parse_args(["--json", "figures.json"]).json == Path("figures.json")
    with pytest.raises(SystemExit):
        parser.parse_args(["--json", str(tmp_path / "missing" / "figures.json")])
    assert "does not exist" in capsys.readouterr().err
