"""Files of a lake without Spark, in a local folder or on S3.

obstore, delta-rs and Arrow take address, region and credentials from AWS's environment variables, as Spark's session does
(`spark.stores`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem, SubTreeFileSystem  # type: ignore[import-untyped]

from cdc_pipeline.errors import CdcError, LakeError, StoreRefusesError, TransientError
from cdc_pipeline.lake.paths import has_files, is_s3_path
from cdc_pipeline.local_files import write_atomically
from cdc_pipeline.spark.stores import s3_endpoint, s3_region

if TYPE_CHECKING:
    from obstore.store import S3Store

_CLOCK = ".clock"
_MOST_KEPT_BYTES = 2**16
_STATUS = re.compile(r"status code: (4\d\d)")
_MAY_SUCCEED = ("408", "409", "429")
_REASONS = re.compile(r"<(?:Code|Message)>([^<]*)</")


@dataclass(frozen=True)
class StoredObject:
    """One version of an object."""

    content: bytes
    e_tag: str
    modified: datetime
    """By the clock of the store, in whole seconds."""


@dataclass(frozen=True)
class S3Folder:
    """The objects below `s3a://bucket/prefix`."""

    url: str

    def read(self, name: str) -> StoredObject | None:
        """The object; None if there is none."""
        with self._named_errors():
            try:
                found = self._store.get(name)
            except FileNotFoundError as error:
                if "<Code>NoSuchBucket</Code>" in str(error):
                    raise
                return None
            return StoredObject(bytes(found.bytes()), str(found.meta["e_tag"]), found.meta["last_modified"])

    def e_tag(self, name: str) -> str | None:
        """Identifies the version of the object; None if there is none."""
        with self._named_errors():
            try:
                return self._store.head(name)["e_tag"]
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        with self._named_errors():
            self._store.put(name, content)

    def names(self) -> list[str]:
        """The objects directly in the folder."""
        with self._named_errors():
            # without the name of a marker, Hadoop's object for the folder itself
            return [found["path"] for found in self._store.list_with_delimiter()["objects"] if found["path"]]

    def e_tags(self, after: str) -> dict[str, str | None]:
        """Object → ETag, for the objects in the folder and below whose names come after this one."""
        with self._named_errors():
            listed = self._store.list(offset=after, chunk_size=1000).collect()
            return {found["path"]: found["e_tag"] for found in listed}

    def create(self, name: str, content: bytes) -> str | None:
        """Writes a new object, and returns its ETag; None if there is one already."""
        return self._put(name, content, "create")

    def replace(self, name: str, content: bytes, e_tag: str) -> str | None:
        """Replaces this version of the object, and returns the ETag of the new one; None if there is another version."""
        return self._put(name, content, {"e_tag": e_tag})

    def _put(self, name: str, content: bytes, mode: Any) -> str | None:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._named_errors():
            try:
                return str(self._store.put(name, content, mode=mode)["e_tag"])
            except (AlreadyExistsError, PreconditionError):
                # an earlier attempt, which obstore has repeated, may have been successful
                found = self.read(name)
                return found.e_tag if found is not None and found.content == content else None

    def copy(self, name: str, target: str) -> None:
        """Copies an object of the folder to the same name in another folder of the bucket. The store copies the bytes."""
        bucket, _, prefix = self.url.removeprefix("s3a://").partition("/")
        to = f"{target.removeprefix(f's3a://{bucket}/')}/{name}"
        with self._named_errors():
            _open_store(f"s3a://{bucket}", s3_endpoint()).copy(f"{prefix}/{name}", to)

    def now(self) -> datetime:
        """The time of the store."""
        with self._named_errors():
            self._store.put(_CLOCK, b"")
            return self._store.head(_CLOCK)["last_modified"]

    @property
    def _store(self) -> S3Store:
        return _open_store(self.url, s3_endpoint())

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Converts obstore's errors: LakeError if the store refuses the request, else TransientError. obstore has tried
        again after an answer of 500 or more."""
        try:
            yield
        except CdcError:
            raise
        except Exception as error:
            text = str(error)
            status, reasons = _STATUS.search(text), _REASONS.findall(text)
            reason = ": ".join(reasons[:2]) or (text.splitlines() or [type(error).__name__])[0]
            if status is not None and status[1] not in _MAY_SUCCEED:
                raise StoreRefusesError(f"{self.url}: the store refuses access: {reason}") from error
            raise TransientError(f"{self.url}: the store does not respond: {reason}") from error


# each client has its own connections, so a new one for each request would connect again
@functools.lru_cache
def _open_store(url: str, endpoint: str) -> S3Store:
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise LakeError(f"{url}: lakes on S3 need the extra s3: pip install 'cdc_pipeline[s3]'") from error
    return S3Store.from_url(
        f"s3://{url.removeprefix('s3a://')}",
        config={"endpoint": endpoint} if endpoint else {},
        client_options={"allow_http": endpoint.startswith("http:")},
    )


@functools.lru_cache
def _open_arrow(endpoint: str, region: str | None) -> S3FileSystem:
    scheme, _, host = endpoint.rpartition("://")
    return S3FileSystem(region=region, endpoint_override=host or None, scheme=scheme or "https")


def read_file(folder: str, name: str) -> bytes | None:
    """A file directly in a folder; None if there is none. `folder`: a local path or `s3a://…`."""
    if is_s3_path(folder):
        found = S3Folder(folder).read(name)
        return None if found is None else found.content
    try:
        return Path(folder, name).read_bytes()
    except FileNotFoundError:
        return None


def read_data_file(folder: str, name: str, size: int) -> bytes:
    """As `read_file`, for a file of `size` bytes that never changes: small ones on S3 are kept in memory, up to 32 MB.

    Raises FileNotFoundError.
    """
    if is_s3_path(folder) and size <= _MOST_KEPT_BYTES:
        return _kept_file(folder, name)
    if (content := read_file(folder, name)) is None:
        raise FileNotFoundError(f"{folder}/{name}")
    return content


@functools.lru_cache(maxsize=512)
def _kept_file(folder: str, name: str) -> bytes:
    return read_data_file(folder, name, _MOST_KEPT_BYTES + 1)


def write_file(folder: str, name: str, content: str) -> None:
    """Replaces the file as a whole."""
    if is_s3_path(folder):
        S3Folder(folder).write(name, content.encode())
    else:
        write_atomically(Path(folder, name), content)


def write_new_file(folder: str, name: str, content: bytes) -> None:
    """Writes a file that nobody reads yet. The folder exists."""
    if is_s3_path(folder):
        S3Folder(folder).write(name, content)
    else:
        Path(folder, name).write_bytes(content)


def copy_file(folder: str, target: str, name: str) -> None:
    """Copies a file that never changes to another folder of the lake: in a local one as a hard link if possible."""
    if is_s3_path(folder):
        S3Folder(folder).copy(name, target)
        return
    place = Path(target, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)  # half a copy
    try:
        place.hardlink_to(Path(folder, name))
    except OSError:
        shutil.copyfile(Path(folder, name), place)


def has_file(folder: str, name: str) -> bool:
    return S3Folder(folder).e_tag(name) is not None if is_s3_path(folder) else Path(folder, name).exists()


def file_names(folder: str) -> list[str]:
    """The names of the files directly in the folder, in no order; empty if there is no folder."""
    if is_s3_path(folder):
        return S3Folder(folder).names()
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except (FileNotFoundError, NotADirectoryError):
        return []


def storage_options(path: str) -> dict[str, str] | None:
    """The options with which delta-rs opens a table; None for a local one."""
    if not is_s3_path(path):
        return None
    endpoint = s3_endpoint()
    own = {"aws_endpoint": endpoint, "aws_allow_http": str(endpoint.startswith("http:")).lower()} if endpoint else {}
    # two writers of one version: one of them fails, as in `ConditionalS3LogStore`
    return {"aws_conditional_put": "etag", **own}


def arrow_folder(path: str) -> FileSystem:
    """The folder as a file system of Arrow.

    Not delta-rs's own: its threads call Python, and if one does so while the process ends, it ends with SIGABRT.
    """
    if not is_s3_path(path):
        return SubTreeFileSystem(path, LocalFileSystem())
    return SubTreeFileSystem(path.removeprefix("s3a://"), _open_arrow(s3_endpoint(), s3_region()))


def open_arrow(path: str) -> tuple[FileSystem, str]:
    """Arrow's file system of a local path or of any URI that Arrow knows, and the path within it."""
    if has_files(path):
        return arrow_folder(path), ""
    file_system, root = FileSystem.from_uri(path)
    return file_system, root
