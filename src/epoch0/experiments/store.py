"""Where finished trials are kept: one SQLite file, one commit a trial, large arrays beside it as safetensors.

Kept at every moment, a kill included: the result of a row in the file is whole, and so is the array file it names;
and no two processes have a file open to write.
"""

import errno
import fcntl
import os
import re
import sqlite3
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from epoch0.arguments import checked
from epoch0.errors import InputError
from epoch0.experiments.encoding import Encoded, decode, encode, equal
from epoch0.experiments.experiment import Trial
from epoch0.files import StrPath, explained, made, sweep, to_read, unlinked, write_atomic

STORE_VERSION = 1  #: the layout of the file; another one is refused
_APPLICATION = 0x65303030  # "e000" in the SQLite header: whose file this is
_NETWORK_DISKS = re.compile(
    r"(nfs|smb|cifs|ncpfs|afs|ceph|lustre|gpfs|beegfs|panfs|pvfs|orangefs|glusterfs|9p|virtiofs"
    r"|fuse\.(sshfs|s3fs|rclone|juicefs|glusterfs|ceph))"
)
_SCHEMA = Path(__file__).with_name("schema.sql").read_text("utf-8")
_LOCK = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)  # of the open file; elsewhere than on Linux of the process
_LOCKED = 1 << 40  # a byte of the file that SQLite never locks
_RESTORE = "restore it from a copy, or move it away and run again"
_COLUMNS = "key, function, seed, spec, result, arrays, digest"


@checked
class Store:
    """The results file of one driver: keys to results.

    >>> trial = Trial("package.module:name", {"width": 32}, seed=0)
    >>> with Store("results.sqlite") as store:
    ...     store.put(trial, {"growth": np.ones(10)})
    ...     store.get(trial.key)["growth"].shape
    (10,)

    Args:
        path: made, with its folder, if it is missing. Large arrays stand beside it in ``<path>.arrays/``.
        read_only: look without locking; the file may be open to write elsewhere.

    Raises:
        InputError: if another process writes to the file, or it is no results file, of another version, truncated
            or damaged, or cannot be opened; it is never changed then.
    """

    def __init__(self, path: StrPath, *, read_only: bool = False) -> None:
        self.path = Path(path)
        if not self.path.name:
            raise InputError(f"the results file {str(path)!r} cannot be opened: it is a folder, not a file.")
        self.arrays = self.path.with_name(self.path.name + ".arrays")
        self._writes = False
        self._lock: int | None = None  # the results file, open and locked
        self._made = False  # by this store: it goes again if something goes wrong before the first result
        self._folder = ExitStack()  # what was made for it
        self._database: sqlite3.Connection | None = None
        try:
            with self._explained("opened"):
                for ending in ("-journal", "-wal", "-shm"):  # SQLite's own files: it waits for a pipe for ever
                    beside = f"{os.path.realpath(self.path)}{ending}"
                    with suppress(FileNotFoundError, NotADirectoryError):  # they come and go
                        if not stat.S_ISREG(os.lstat(beside).st_mode):
                            text = f"{beside} is no file, so the results file beside it cannot be opened; remove it."
                            raise InputError(text)
                if read_only:
                    _check_header(self.path)
                    for mode in ("ro", "rw"):
                        self._database = _connect(f"{self.path.resolve().as_uri()}?mode={mode}", uri=True)
                        try:
                            return self._check_contents()
                        except sqlite3.OperationalError as error:
                            if mode == "rw" or "readonly" not in str(error):
                                raise
                            self._close_database()  # a killed run left half a change: SQLite takes it back, if it may
                self._take_lock()
                self._database = _connect(str(self.path))
                self._check_contents()
                journal = "delete" if on_network(self.path.parent) else "wal"
                granted = self._execute(f"PRAGMA journal_mode={journal}").fetchone()[0]
                self._execute(f"PRAGMA synchronous={'NORMAL' if granted == 'wal' else 'FULL'}")
                if unlinked(self.arrays).is_dir():
                    sweep(self.arrays)
                self._writes = True
        except BaseException as error:
            self.__exit__(error)
            raise

    def get(self, key: str) -> dict[str, Any] | None:
        """The result of the trial with this key, or None; an InputError if it was damaged since it was written."""
        with self._explained("read"):
            row = self._execute("SELECT result, arrays, digest FROM results WHERE key = ?", (key,)).fetchone()
            try:
                return None if row is None else decode(self._checked(key, *row))
            except (InputError, OSError, sqlite3.Error):
                raise
            except Exception as error:  # a right checksum of what nobody here wrote
                raise sqlite3.DatabaseError(f"trial {key[:12]}...: {error}") from error

    def put(self, trial: Trial, result: Mapping[str, Any] | Encoded) -> None:
        """Keep a finished trial: when this returns, a kill of the process cannot lose it. A key that is there already
        is left as it is: trials are pure, so it is the same result. A disk that is full or not writable is an
        InputError; the trial is then not in the file, all others are.
        """
        if self._database is not None and not self._writes:
            raise InputError(f"{self.path} was opened to read only; open it with Store({str(self.path)!r}) to write.")
        encoded = result if isinstance(result, Encoded) else encode(result)
        with self._explained("written"):
            if not self._holds():
                raise InputError(f"{self.path} was moved or removed while this run wrote to it; run again.")
            if trial.key in self:
                return
            name = self._write_arrays(trial.key, encoded)
            row = (trial.key, trial.function, trial.seed, trial.canonical, encoded.text, name, encoded.digest)
            self._execute("INSERT INTO results VALUES (?,?,?,?,?,?,?)", row)

    def keys(self) -> set[str]:
        """The keys of all finished trials."""
        with self._explained("read"):
            return {key for (key,) in self._execute("SELECT key FROM results")}

    def __contains__(self, key: object) -> bool:
        return self._execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone() is not None

    def __len__(self) -> int:
        return int(self._execute("SELECT count(*) FROM results").fetchone()[0])

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, error: object, *rest: object) -> None:
        """Close it; a file that was made here and holds nothing when something went wrong is removed."""
        with suppress(sqlite3.Error):  # it cannot even be read
            if error is not None and self._made and self._database is not None and not len(self):
                self._close_database()
                self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the file and let others write to it; calling it again does nothing."""
        self._close_database()
        if self._lock is not None:  # last: closing any descriptor of a file gives up all that SQLite has locked of it
            with suppress(OSError):
                self.arrays.rmdir()  # when it is empty
            os.close(self._lock)
            self._lock = None
        self._folder.close()

    def _close_database(self) -> None:
        if self._database is not None:
            if self._writes:
                # A file at rest is one file that any disk and any read-only copy can open. Not possible while
                # someone reads along, and then not needed: the last to close leaves a sound file all the same.
                try:
                    self._database.execute("PRAGMA journal_mode=delete").fetchall()
                except sqlite3.Error:
                    self._database.rollback()
            self._database.close()
            self._database, self._writes = None, False

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        if self._database is None:
            raise InputError(f"{self.path} is closed; open it again with Store({str(self.path)!r}).")
        return self._database.execute(statement, values)

    def _take_lock(self) -> None:
        """Be the only writer until this process closes the store or dies: the system drops the lock with it. The
        results file itself is locked. A new one is put in place whole, so a short file was cut by someone else.
        """
        while self._lock is None:
            if not unlinked(self.path, "results file", own=True).exists():
                self._folder.enter_context(made(self.path.parent))
                with closing(_connect(":memory:")) as empty:
                    empty.executescript(_SCHEMA)
                    write_atomic(self.path, empty.serialize(), "results file", new=True)
                self._made = True
            _check_header(self.path)
            with suppress(FileNotFoundError):  # another writer finished at this moment
                self._lock = os.open(self.path, os.O_RDWR)
                try:
                    # struct flock: kind, from where, start, length, process
                    fcntl.fcntl(self._lock, _LOCK, struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, _LOCKED, 1, 0))
                except BlockingIOError as error:
                    hint = "wait for it to end, or give this run a file of its own and merge the two afterwards"
                    raise InputError(f"{self.path} is open to write in another run; {hint}.") from error
                if not self._holds():
                    os.close(self._lock)
                    self._lock, self._made = None, False

    def _holds(self) -> bool:
        """Whether the file that is locked still has its name."""
        assert self._lock is not None
        return self.path.exists() and os.path.samestat(os.stat(self.path), os.fstat(self._lock))

    def _check_contents(self) -> None:
        """Whole: SQLite's own check of every page, and our table."""
        if (answer := self._execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(" ".join(answer.split()))
        self._execute(f"SELECT {_COLUMNS} FROM results LIMIT 1").fetchone()

    def _write_arrays(self, key: str, encoded: Encoded) -> str | None:
        """Put the array file in place whole and on the disk, before any row names it."""
        if encoded.arrays is None:
            return None
        unlinked(self.arrays).mkdir(exist_ok=True)
        return write_atomic(self.arrays / f"{key}.safetensors", encoded.arrays, "array file").name

    def _checked(self, key: str, text: Any, arrays: Any, digest: Any) -> Encoded:
        """A row and its array file, exactly as they were written; of a file from elsewhere they may be anything."""
        content = None
        if not str(text).startswith("{") or arrays not in (None, f"{key}.safetensors"):
            raise sqlite3.DatabaseError(f"trial {key[:12]}... is not as it was written")
        if arrays is not None:
            if not (file := self.arrays / arrays).is_file():
                raise InputError(f"{file} is missing, and {self.path} refers to it; put it back beside the file.")
            content = file.read_bytes()
        if (encoded := Encoded(text, content)).digest != digest:
            damaged = self.path if arrays is None else f"{self.path} or {self.arrays / arrays}"
            raise InputError(f"{damaged} was changed or damaged after it was written (trial {key[:12]}); {_RESTORE}.")
        return encoded

    @contextmanager
    def _explained(self, task: str) -> Iterator[None]:
        """Every failure of the file as one error that names it and says what to do."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            number = error.errno if isinstance(error, OSError) else None
            if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "is full" in str(error):
                hint = "the disk is full; make room and run again: what is finished is kept and not run again"
            elif "readonly" in str(error):
                hint = "a run that was killed has left it half written, and it may not be written to; run that again"
            elif type(error) is sqlite3.DatabaseError:
                hint = f"it is truncated or damaged ({error}); {_RESTORE}"
            else:
                hint = f"{error}; check the path, its permissions and the disk, or give another file"
            raise InputError(f"{self.path} cannot be {task}: {hint}.") from error


@checked
def merge(sources: Iterable[StrPath] | StrPath, into: StrPath) -> int:
    """Join results files, such as those of a job array, into one; all or nothing.

    >>> for seed in (1, 2):
    ...     with Store(f"part{seed}.sqlite") as part:
    ...         part.put(Trial("package.module:name", {"width": 32}, seed), {"growth": 1.5})
    >>> merge(["part1.sqlite", "part2.sqlite"], into="merged.sqlite")
    2

    The sources are only read, and may still be growing; ``into`` is made if it is missing. Gives how many results were
    added; those that were there already are not counted.

    Raises:
        InputError: if a file cannot be used, or two files hold different results for one trial.
    """
    sources = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    if not sources:
        raise InputError("there are no files to merge; give one or more.")
    for source in sources:  # before a new file lies beside them, which is none that they may have meant
        to_read(source, "results file")
    added, files = 0, list[Path]()
    with Store(into) as target, target._explained("written"):
        target._execute("BEGIN IMMEDIATE")
        try:
            for source in sources:
                with Store(source, read_only=True) as part, part._explained("read"):
                    for row in part._execute(f"SELECT {_COLUMNS} FROM results"):
                        key, function, seed, spec, *stored = row
                        if key not in target:
                            if name := target._write_arrays(key, part._checked(key, *stored)):
                                files.append(target.arrays / name)
                            target._execute("INSERT INTO results VALUES (?,?,?,?,?,?,?)", row)
                            added += 1
                        elif not equal(target.get(key), part.get(key)):
                            text = f"{part.path} and {target.path} (or a file merged before) hold different results"
                            trial = f"the trial {function} seed={seed} spec={spec[:200]}"
                            hint = "they come from different code or machines; keep them apart, or run that trial again"
                            raise InputError(f"{text} for {trial}: {hint}.")
            target._execute("COMMIT")
        except BaseException:
            target._execute("ROLLBACK")
            for file in files:
                file.unlink(missing_ok=True)
            raise
    return added


@checked
def on_network(folder: StrPath, mounts: str = "/proc/mounts") -> bool:
    """Whether a folder is on a network file system, where SQLite's write-ahead log fails; True where nothing tells."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    with explained(folder, "folder", "read"):
        root = Path(folder).resolve()
    kinds = dict[Path, str]()  # by their places; the later of two at one place shows
    for _, point, kind, *_ in (line.split() for line in lines if len(line.split()) > 2):
        kinds[Path(point.replace("\\040", " "))] = kind
    above = (point for point in (root, *root.parents) if point in kinds)
    return _NETWORK_DISKS.match(kinds.get(next(above, root), "")) is not None


def _connect(name: str, uri: bool = False) -> sqlite3.Connection:
    """A connection that commits every statement by itself; readers wait for a writer's commit."""
    return sqlite3.connect(name, timeout=10.0, isolation_level=None, uri=uri)


def _check_header(path: Path) -> None:
    """Ours and of this version, from the bytes SQLite keeps at 60 and 68, before SQLite itself may touch the file."""
    with open(to_read(path, "results file"), "rb") as file:
        start = file.read(100)
    version, application = (int.from_bytes(start[at : at + 4], "big") for at in (60, 68))
    problem = ""
    if not start:
        problem = "is empty: truncated, or no results file; remove it or give another file name"
    elif not start.startswith(b"SQLite format 3\x00") or len(start) < 100:
        problem = "is no results file (or its beginning is damaged); give another file name"
    elif application != _APPLICATION:
        problem = "is an SQLite file of another program; give a new file name for the results"
    elif version != STORE_VERSION:
        problem = f"is a results file of version {version}, and this epoch0 writes version {STORE_VERSION}; use the "
        problem += "epoch0 that made it, or give a new file name"
    if problem:
        raise InputError(f"{path} {problem}.")
