"""A storage folder that cannot be listed or read: which errors are retried, and what they say."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.lake.store import S3Folder
from cdc_pipeline.sources.storage.folder import ArrowFolder, list_folder, read_error
from cdc_pipeline_tests.support.servers.object_store import BUCKET, ObjectStore


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/sink/metadata"), SourceError),
        (
            OSError("When listing objects: AWS Error ACCESS_DENIED during ListObjectsV2 operation: Access Denied"),
            SourceError,
        ),
        (OSError("When getting information: AWS Error UNKNOWN (HTTP status 403) during HeadObject"), SourceError),
        (
            RuntimeError("org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme 's4'"),
            SourceError,
        ),
        (RuntimeError("Job aborted\n\tat org.apache.hadoop.security.AccessControlException: denied"), SourceError),
        (RuntimeError("Job aborted\n\tat java.security.AccessController.doPrivileged(Native Method)"), TransientError),
        (OSError(errno.EIO, "Input/output error", "/sink"), TransientError),
        (OSError("AWS Error NETWORK_CONNECTION during ListObjectsV2 operation"), TransientError),
    ],
)
def test_refused_access_is_terminal(error: Exception, kind: type[Exception]) -> None:
    found = read_error("/sink", error)
    assert type(found) is kind
    assert str(found).startswith(f"the storage folder '/sink' cannot be read: {str(error).splitlines()[0]}. Check ")


def _refuse(*_: Any) -> Any:
    raise PermissionError(errno.EACCES, "Permission denied", "there")


def test_a_local_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ArrowFolder(str(tmp_path))
    monkeypatch.setattr(folder, "_files", SimpleNamespace(get_file_info=_refuse))
    for look in (lambda: list_folder(folder), lambda: list(folder.files())):
        with pytest.raises(
            SourceError, match=r"storage folder .* cannot be read: .*Permission denied: 'there'\. Check the path"
        ):
            look()


def test_a_local_folder(tmp_path: Path) -> None:
    """With links to folders. A link to nothing is left out, as is a file that vanishes while the folder is listed."""
    with pytest.raises(SourceError, match="does not exist"):
        ArrowFolder(str(tmp_path / "none"))
    table = tmp_path / "there" / "db %20#" / "ü"
    table.mkdir(parents=True)
    (table / "CDC000001.json").write_bytes(b"{}\n")
    with pytest.raises(SourceError, match="is a file"):
        ArrowFolder(str(table / "CDC000001.json"))
    sink = tmp_path / "sink"
    sink.mkdir()
    (sink / "db").symlink_to(tmp_path / "there" / "db %20#")
    (sink / "gone").symlink_to(tmp_path / "nowhere")
    folder = ArrowFolder(str(sink))
    modified_ms = (table / "CDC000001.json").stat().st_mtime_ns // 1_000_000
    assert (list(folder.files()), folder.metadata()) == ([("db/ü/CDC000001.json", 3, modified_ms)], None)
    (sink / "metadata").mkdir()
    with pytest.raises(TransientError, match="cannot be read"):
        folder.metadata()
    (sink / "metadata").rmdir()
    (sink / "metadata").write_bytes(b"{")
    found = folder.metadata()
    assert found is not None
    assert found[0] == b"{"


def test_an_unknown_file_system_is_terminal() -> None:
    with pytest.raises(SourceError, match=r"storage folder 's4://bucket/sink' cannot be read"):
        ArrowFolder("s4://bucket/sink")


def test_a_folder_on_s3(s3: ObjectStore) -> None:  # noqa: ARG001 - the server
    url = f"s3a://{BUCKET}/{uuid.uuid4().hex}"
    with pytest.raises(SourceError, match="does not exist"):
        list(ArrowFolder(url).files())
    S3Folder(url).write("metadata", b'{"checkpoint-ts":470613987560259584}')
    S3Folder(f"{url}/shop/orders/1").write("CDC000001.json", b"{}\n")
    folder = ArrowFolder(f"{url}/")
    assert sorted((path, size) for path, size, _ in folder.files()) == [
        ("metadata", 36),
        ("shop/orders/1/CDC000001.json", 3),
    ]
    found = folder.metadata()
    assert found is not None
    assert found[0] == b'{"checkpoint-ts":470613987560259584}'
