"""Fetching data sets, from a web server of this test's own on this machine."""

import dataclasses
import errno
import gzip
import hashlib
import http.server
import io
import os
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from epoch0 import data
from epoch0.data import loading
from epoch0.data.catalogue import SETS, KnownFile
from epoch0.errors import InputError
from made_sets import CIFAR10_FILES, encode_idx, made_idx, write_cifar, write_idx, write_set


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own, and no EPOCH0_DATA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("EPOCH0_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(loading, "SCHEME", "http://")  # the server here has no certificate
    return tmp_path / "cache" / "epoch0"


class Server:
    """A web server on this machine: `files` maps a path to a body, and `promise` to a larger length it claims."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.promise: dict[str, int] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                body = outer.files.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(outer.promise.get(self.path, len(body or b""))))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *args: object) -> None:
                """Keep the test's output quiet."""

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def dead_address() -> str:
    """An address on this machine where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/"


def told_of(name: str, content: bytes) -> KnownFile:
    return KnownFile(name, len(content), hashlib.md5(content).hexdigest())


def serve_mnist(server: Server, monkeypatch: pytest.MonkeyPatch, mirrors: tuple[str, ...] = ()) -> None:
    """Put a small made set into the catalogue as the official MNIST, and on the server."""

    def published(seed: int, prefix: str, count: int) -> tuple[KnownFile, ...]:
        files = []
        for name, array in zip(("images-idx3", "labels-idx1"), made_idx(seed, count), strict=True):
            raw = encode_idx(array)
            server.files[f"/{prefix}-{name}-ubyte.gz"] = gzip.compress(raw)
            plain = f"{prefix}-{name}-ubyte"
            packed = told_of(f"{plain}.gz", gzip.compress(raw))
            files.append(dataclasses.replace(told_of(plain, raw), packed=packed))
        return tuple(files)

    train, test = published(0, "train", 20), published(1, "t10k", 10)
    known = dataclasses.replace(SETS["mnist"], train=train, test=test, mirrors=(*mirrors, server.address))
    monkeypatch.setitem(SETS, "mnist", known)


def serve_cifar(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str]) -> bytes:
    write_cifar(tmp_path / "upload" / "cifar-10-batches-bin", files, 1, 10)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(tmp_path / "upload" / "cifar-10-batches-bin", "cifar-10-batches-bin")
    body = server.files["/cifar.tar.gz"] = packed.getvalue()
    archive = told_of("cifar.tar.gz", body)
    known = dataclasses.replace(SETS["cifar10"], archive=archive, mirrors=(f"{server.address}cifar.tar.gz",))
    monkeypatch.setitem(SETS, "cifar10", known)
    return body


def test_fetch_puts_a_checked_set_into_the_cache(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    serve_mnist(server, monkeypatch)
    lines: list[str] = []
    assert data.fetch("mnist", progress=lines.append) == data.path("mnist") == cache / "mnist"
    assert len(lines) == len(server.asked) == 4 and "train-images-idx3-ubyte.gz" in lines[0]
    loaded = data.load("mnist")
    assert loaded.verified and len(loaded) == 20
    assert sorted(path.name for path in cache.iterdir()) == ["mnist"]  # nothing else is left
    assert data.fetch("mnist") == cache / "mnist" and len(server.asked) == 4  # it is there: no second download
    assert capfd.readouterr() == ("", "")


def test_fetch_into_a_named_folder_and_from_a_folder_that_has_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_mnist(server, monkeypatch)
    assert data.fetch("mnist", data_dir=tmp_path / "new" / "place") == tmp_path / "new" / "place" / "mnist"
    monkeypatch.setenv("EPOCH0_DATA", str(tmp_path / "new" / "place"))
    assert data.fetch("mnist") == tmp_path / "new" / "place" / "mnist" and len(server.asked) == 4


def test_fetch_takes_the_next_mirror_and_files_the_server_unpacked(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_mnist(server, monkeypatch, mirrors=(dead_address(),))
    server.files = {path: gzip.decompress(body) for path, body in server.files.items()}
    data.fetch("mnist")
    assert data.load("mnist", "test").verified


@pytest.mark.parametrize("case", ["truncated", "cut transfer", "other content", "missing", "no server", "web page"])
def test_a_failed_fetch_is_one_error_and_leaves_nothing(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    serve_mnist(server, monkeypatch)
    place = "/t10k-labels-idx1-ubyte.gz"  # the last of the four
    body = server.files[place]
    expected = SETS["mnist"].test[1].packed
    assert expected is not None
    wanted = f"expected {expected.bytes:,} bytes with MD5 {expected.md5}"
    message = {
        "truncated": f"has wrong content: {len(body) - 9} bytes with MD5 .*, {wanted}",
        "cut transfer": "the transfer broke off",
        "other content": f"has wrong content: 23 bytes with MD5 .*, {wanted}",
        "missing": "the server answers 404",
        "no server": "no connection",
        "web page": "has wrong content",
    }[case]
    if case == "truncated":
        server.files[place] = body[:-9]
    elif case == "cut transfer":
        server.promise[place] = len(body) + 100
    elif case == "other content":
        server.files[place] = gzip.compress(b"abc")
    elif case == "missing":
        del server.files[place]
    elif case == "no server":
        monkeypatch.setitem(SETS, "mnist", dataclasses.replace(SETS["mnist"], mirrors=(dead_address(),)))
    else:
        server.files[place] = b"<html>log in to use this network</html>"
    with pytest.raises(InputError, match=f"mnist could not be fetched.*{message}.*EPOCH0_DATA"):
        data.fetch("mnist")
    assert not cache.exists()
    with pytest.raises(InputError, match="was not found"):
        data.load("mnist")


def test_a_full_disk_is_one_error(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_mnist(server, monkeypatch)
    written: list[int] = []

    def fill(handle: int) -> None:
        written.append(handle)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", fill)
    with pytest.raises(InputError, match=r"mnist/.*\.gz' cannot be written: No space left on device.*make room"):
        data.fetch("mnist")
    assert len(written) == 3 and not cache.exists()


def test_a_folder_that_cannot_be_made_is_one_error(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_mnist(server, monkeypatch)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match=r"the folder '.*file/mnist' cannot be made: Not a directory"):
        data.fetch("mnist", data_dir=tmp_path / "file")
    assert server.asked == []


def test_fetch_mends_its_own_folder(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_mnist(server, monkeypatch)
    data.fetch("mnist")
    images, labels = (cache / "mnist" / f"{name}-ubyte.gz" for name in ("train-images-idx3", "t10k-labels-idx1"))
    for damage in ([images], [labels], [images, labels]):
        for file in damage:
            file.write_bytes(b"\x1f\x8b cut") if file == images else file.unlink()
        with pytest.raises(InputError, match="epoch0 data fetch mnist"):
            data.load("mnist", "train" if images in damage else "test")
        data.fetch("mnist")
        assert data.load("mnist").verified and data.load("mnist", "test").verified
    write_idx(labels, made_idx(1, 10)[1][::-1])  # official images with other labels are not the official set
    assert not data.load("mnist", "test").verified


def test_fetch_never_overwrites_other_content(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_mnist(server, monkeypatch)
    write_set(tmp_path / "own" / "mnist", count=40)
    (tmp_path / "own" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()  # incomplete, and still not ours to replace
    own = {path: path.read_bytes() for path in (tmp_path / "own" / "mnist").iterdir()}
    with pytest.raises(InputError, match="is in the way: it is a well-formed file of other content"):
        data.fetch("mnist", data_dir=tmp_path / "own")
    # a damaged file in a folder that fetching would not write to is named, not replaced
    write_set(tmp_path / "variable" / "mnist")
    (tmp_path / "variable" / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"")
    monkeypatch.setenv("EPOCH0_DATA", str(tmp_path / "variable"))
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte\.gz is no IDX file"):
        data.fetch("mnist")
    assert own == {path: path.read_bytes() for path in (tmp_path / "own" / "mnist").iterdir()}
    assert server.asked == [] and not cache.exists()


def test_fetch_unpacks_an_archive_and_records_its_checksums(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_cifar(server, tmp_path, monkeypatch, CIFAR10_FILES)
    folder = data.fetch("cifar10")
    assert folder == cache / "cifar10" / "cifar-10-batches-bin"
    assert data.load("cifar10").verified and data.load("cifar10", "test").verified
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    batch = folder / "test_batch.bin"
    batch.write_bytes(bytes(len(batch.read_bytes())))  # well-formed, but no longer what was fetched
    assert not data.load("cifar10", "test").verified
    with pytest.raises(InputError, match="is in the way"):
        data.fetch("cifar10")


def test_a_hand_made_cifar_folder_is_good_enough_for_fetch(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar-10-batches-bin", CIFAR10_FILES, 1, 10)
    assert data.fetch("cifar10", data_dir=tmp_path) == tmp_path / "cifar-10-batches-bin"


@pytest.mark.parametrize("case", ["truncated", "incomplete archive", "no archive"])
def test_a_bad_archive_leaves_nothing(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    files = CIFAR10_FILES[:-1] if case == "incomplete archive" else CIFAR10_FILES
    body = serve_cifar(server, tmp_path, monkeypatch, files)
    message = "does not unpack into the files of cifar10"
    if case == "truncated":
        server.files["/cifar.tar.gz"] = body[:-50]
        message = f"{len(body) - 50:,} bytes with MD5 .*expected {len(body):,} bytes"
    elif case == "no archive":
        server.files["/cifar.tar.gz"] = b"text"
        archive = told_of("cifar.tar.gz", b"text")
        monkeypatch.setitem(SETS, "cifar10", dataclasses.replace(SETS["cifar10"], archive=archive))
    with pytest.raises(InputError, match=message):
        data.fetch("cifar10")
    assert not cache.exists()
