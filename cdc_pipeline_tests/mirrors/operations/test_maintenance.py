"""Limits of maintenance. `cuts/test_reading.py` runs it on a lake with cuts."""

from __future__ import annotations

import pytest

from cdc_pipeline.errors import LakeError
from cdc_pipeline.mirrors.operations.maintenance import Maintenance


def test_files_that_readers_need_are_kept() -> None:
    with pytest.raises(LakeError, match="keep_hours: 24 is too little: 168 or more are expected"):
        Maintenance(keep_hours=24)
