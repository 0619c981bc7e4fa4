"""The pages that `cdc-pipeline docs` shows."""

from __future__ import annotations

from importlib import metadata

import pytest
from click.testing import CliRunner

from cdc_pipeline.cli import pages
from cdc_pipeline.cli.main import cli
from cdc_pipeline.errors import DeclarationError


def _docs(*words: str) -> str:
    found = CliRunner().invoke(cli, ["docs", *words], catch_exceptions=False)
    assert found.exit_code == 0
    return found.output


def test_the_list_has_every_page_with_its_title() -> None:
    lines = _docs().splitlines()
    assert lines[0].split() == ["page", "title"]
    assert any(line.split(maxsplit=1) == ["operations", "Operations"] for line in lines)
    assert len(lines) == len(pages.page_titles()) + 2  # with the underlined heading


def test_a_section_ends_before_the_next_one_of_its_level() -> None:
    found = _docs("operations", "dead", "letters")
    assert found.startswith("## Dead letters and gaps\n")
    assert "### Gaps" in found
    assert "## Checks" not in found
    assert _docs("operations", "gaps").rstrip() in _docs("operations", "Dead letters")
    assert found.rstrip() in _docs("operations")


def test_the_last_section_and_comments_in_code() -> None:
    """kafka.md has a YAML file, whose first line looks like a heading."""
    assert _docs("kafka").rstrip().endswith(_docs("kafka", "large messages").rstrip())
    with pytest.raises(DeclarationError, match=r"no section 'cdc_pipeline/defs': expected one of .*Large messages"):
        pages.read_page("kafka", "cdc_pipeline/defs")


def test_an_unknown_page_is_answered_with_the_known_ones() -> None:
    with pytest.raises(DeclarationError, match=r"no page '\.\./README': expected one of architecture, audit"):
        pages.read_page("../README")


def test_an_installation_without_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(pages, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(metadata, "files", lambda _: None)
    with pytest.raises(DeclarationError, match="install cdc_pipeline from its wheel"):
        pages.page_titles()
