"""Freed memory goes back to the system."""

from __future__ import annotations

import os
import platform
from types import SimpleNamespace

import pytest

from benchmarks.processes import resident_bytes
from cdc_pipeline.assets import free_memory
from cdc_pipeline.assets.free_memory import return_free_memory

_MEBIBYTE = 1 << 20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no malloc_trim")
def test_free_memory_is_returned_though_a_block_after_it_is_in_use() -> None:
    blocks = [bytes(64 * 1024) for _ in range(2000)]
    in_use = blocks[-1]
    del blocks
    held = resident_bytes([os.getpid()])
    return_free_memory()
    assert held - resident_bytes([os.getpid()]) > 80 * _MEBIBYTE
    assert len(in_use) == 64 * 1024


def test_nothing_happens_without_malloc_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "ctypes", SimpleNamespace(CDLL=lambda _: SimpleNamespace()))
    return_free_memory()
