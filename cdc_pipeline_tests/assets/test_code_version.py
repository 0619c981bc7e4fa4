"""Code and declaration that change while a process has them loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_pipeline.assets import follower
from cdc_pipeline.assets.follower import LoadedCode


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "package" / "room").mkdir(parents=True)
    (tmp_path / "package" / "room" / "module.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.setattr(follower, "_PACKAGE", tmp_path / "package")
    return tmp_path / "package"


def test_changed_added_and_removed_modules(package: Path) -> None:
    module, loaded = package / "room" / "module.py", LoadedCode()
    assert not loaded.has_changed
    module.write_text("x = 22\n", encoding="utf-8")
    assert loaded.has_changed
    loaded = LoadedCode()
    (package / "new.py").touch()
    assert loaded.has_changed
    loaded = LoadedCode()
    module.unlink()
    assert loaded.has_changed


def test_other_files_do_not_count(package: Path) -> None:
    loaded = LoadedCode()
    (package / "room" / "notes.txt").touch()
    assert not loaded.has_changed


def test_the_declaration_counts(package: Path, tmp_path: Path) -> None:
    assert package.exists()
    declaration = tmp_path / "defs.yaml"
    declaration.write_text("type: x\n", encoding="utf-8")
    loaded = LoadedCode(declaration)
    assert not loaded.has_changed
    declaration.write_text("type: other\n", encoding="utf-8")
    assert loaded.has_changed
    assert not LoadedCode(tmp_path / "missing.yaml").has_changed
