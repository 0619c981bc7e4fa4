"""Returns memory that the process has freed to the system."""

from __future__ import annotations

import ctypes


def return_free_memory() -> None:
    """Returns the free pages of the C heap to the system. Does nothing without glibc.

    The threads of a batch allocate in heaps of their own, and glibc keeps what they free: 0.3 MB more after each batch, for
    hours. It takes a few ms.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
