from __future__ import annotations

import signal
import subprocess
import sys
import time

from cdc_pipeline.resources.turns import turn

_NAME = "test_turns"
_HOLDER = f"""
import time
from cdc_pipeline.resources.turns import turn
with turn({_NAME!r}):
    print("mine", flush=True)
    time.sleep(60)
"""
_WAITER = f"""
from cdc_pipeline.resources.turns import turn
print("waits", flush=True)
with turn({_NAME!r}):
    print("mine", flush=True)
"""


def _process(text: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)


def test_the_second_waits_until_the_first_is_gone() -> None:
    with _process(_HOLDER) as holder:
        try:
            assert _line(holder) == "mine\n"
            with _process(_WAITER) as waiter:
                try:
                    assert _line(waiter) == "waits\n"
                    time.sleep(0.3)
                    assert waiter.poll() is None
                    holder.send_signal(signal.SIGKILL)  # a turn does not outlive its process, however that ends
                    assert _line(waiter) == "mine\n"
                    assert waiter.wait(10) == 0
                finally:
                    waiter.kill()
        finally:
            holder.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_turns_follow_one_another() -> None:
    for _ in range(2):
        with turn(_NAME):
            pass
