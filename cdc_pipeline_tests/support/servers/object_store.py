"""Servers of S3 with conditional writes, and the environment in which clients find them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest

BUCKET = "lake"
"""The bucket of moto."""
_START_SECONDS = 60.0
_VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_REGION, _KEY, _SECRET = "us-east-1", "test", "not-in-any-log"


@dataclass(frozen=True)
class ObjectStore:
    url: str
    log: Path
    """The server's log: a line per request."""
    bucket: str
    """An empty bucket. Each server has another one, because Hadoop keeps a client per bucket."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": _REGION,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
        }

    def create_bucket(self, name: str) -> None:
        client = boto3.client(
            "s3", endpoint_url=self.url, region_name=_REGION, aws_access_key_id=_KEY, aws_secret_access_key=_SECRET
        )
        client.create_bucket(Bucket=name)


def object_store(folder: Path) -> AbstractContextManager[ObjectStore]:
    """moto, which has Glue too."""
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", "{port}"]
    return _server(command, {}, folder, BUCKET)


def versity_store(folder: Path) -> AbstractContextManager[ObjectStore]:
    """Versity's gateway, which keeps objects as files. Building it takes two CPU-minutes and needs Go."""
    binaries, objects = folder / "bin", folder / "objects"
    objects.mkdir()
    subprocess.run(["go", "install", _VERSITYGW], env={**os.environ, "GOBIN": str(binaries)}, check=True)
    command = [str(binaries / "versitygw"), "--port", "127.0.0.1:{port}", "posix", str(objects)]
    return _server(command, {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}, folder, "versity")


STORES: Mapping[str, Callable[[Path], AbstractContextManager[ObjectStore]]] = {
    "moto": object_store,
    "versitygw": versity_store,
}


def on_each_store(*marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Runs tests with moto, where they have the marks, and with Versity's gateway."""
    stores = [pytest.param("moto", marks=marks), pytest.param("versitygw", marks=pytest.mark.long)]
    return pytest.mark.parametrize("s3", stores, indirect=True)


@contextmanager
def _server(command: Sequence[str], variables: Mapping[str, str], folder: Path, bucket: str) -> Iterator[ObjectStore]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = ObjectStore(f"http://127.0.0.1:{port}", folder / "requests.log", bucket)
    arguments = [argument.format(port=port) for argument in command]
    with (
        store.log.open("wb") as log,
        subprocess.Popen(arguments, stdout=log, stderr=log, env={**os.environ, **variables}) as server,
    ):
        try:
            wait_for(store.url, server)
            store.create_bucket(bucket)
            yield store
        finally:
            server.terminate()


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    """Waits until the server answers."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError:  # it answers
            return
        except OSError:
            if time.monotonic() > until or server.poll() is not None:
                raise
            time.sleep(0.1)
