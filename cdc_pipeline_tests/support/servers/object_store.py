"""A server of S3 and Glue (moto), with conditional writes, and the environment in which clients find it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3

BUCKET = "lake"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class ObjectStore:
    url: str
    log: Path
    """The server's log: a line per request."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "not-in-any-log",
        }


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """The server, with the empty bucket `BUCKET`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = ObjectStore(f"http://127.0.0.1:{port}", folder / "requests.log")
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    with store.log.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            _wait_for(store.url, server)
            names = ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
            region, key, secret = (store.environment[name] for name in names)
            client = boto3.client(
                "s3", endpoint_url=store.url, region_name=region, aws_access_key_id=key, aws_secret_access_key=secret
            )
            client.create_bucket(Bucket=BUCKET)
            yield store
        finally:
            server.terminate()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{url}/moto-api/", timeout=5):
                return
        except OSError:
            if time.monotonic() > until or server.poll() is not None:
                raise
            time.sleep(0.1)
