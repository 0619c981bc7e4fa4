"""Code and declaration that change while a process has them loaded, and the version of the rules that Dagster compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_pipeline.assets import follower
from cdc_pipeline.assets.follower import code_states
from cdc_pipeline.assets.nodes import CODE_VERSION, RULES, rules_version


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "package" / "room").mkdir(parents=True)
    (tmp_path / "package" / "room" / "module.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.setattr(follower, "_PACKAGE", tmp_path / "package")
    return tmp_path / "package"


def test_the_version_of_assets_is_that_of_the_rules(tmp_path: Path) -> None:
    """A release that changes no rule does not make all assets out of sync."""
    for module in ("mirrors/merge/rows.py", "dialects/canal.py", "cli/main.py", "__init__.py"):
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / module).write_text("x = 1\n", encoding="utf-8")
    before = rules_version(tmp_path)
    (tmp_path / "cli" / "main.py").write_text("x = 2\n", encoding="utf-8")
    assert rules_version(tmp_path) == before
    (tmp_path / "mirrors" / "merge" / "rows.py").write_text("x = 2\n", encoding="utf-8")
    changed = rules_version(tmp_path)
    assert changed != before
    (tmp_path / "dialects" / "canal.py").write_text("x = 2\n", encoding="utf-8")
    assert rules_version(tmp_path) not in (before, changed)


def test_all_rules_are_found() -> None:
    assert all(list((follower._PACKAGE / room).glob("*.py")) for room in RULES)
    assert rules_version(follower._PACKAGE) == CODE_VERSION


def test_changed_added_and_removed_modules(package: Path) -> None:
    module, loaded = package / "room" / "module.py", code_states()
    assert code_states() == loaded
    module.write_text("x = 22\n", encoding="utf-8")
    assert code_states() != loaded
    loaded = code_states()
    (package / "new.py").touch()
    assert code_states() != loaded
    loaded = code_states()
    module.unlink()
    assert code_states() != loaded


def test_other_files_do_not_count(package: Path) -> None:
    loaded = code_states()
    (package / "room" / "notes.txt").touch()
    assert code_states() == loaded


def test_the_declaration_counts(package: Path, tmp_path: Path) -> None:
    assert package.exists()
    declaration = tmp_path / "defs.yaml"
    declaration.write_text("type: x\n", encoding="utf-8")
    loaded = code_states(declaration)
    assert code_states(declaration) == loaded
    declaration.write_text("type: other\n", encoding="utf-8")
    assert code_states(declaration) != loaded
    assert code_states(tmp_path / "missing.yaml") == code_states()
