"""Where finished trials are kept: one SQLite file, one commit a trial, large arrays beside it as safetensors.

Kept at every moment, a kill included::

    a row is in the file  =>  its result is whole, and so is the array file it names
    a file is open to write  =>  nobody else has it open
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from epoch0.arguments import checked
from epoch0.errors import InputError
from epoch0.experiments.encoding import Encoded, decode, encode
from epoch0.experiments.experiment import Trial
from epoch0.files import StrPath, made, sweep, to_read, to_write, unlinked, write_atomic

STORE_VERSION = 1
"""The layout of the file; another one is refused."""

_APPLICATION = 0x65303030  # "e000" in the SQLite header: whose file this is
_SCHEMA = f"""
BEGIN;
CREATE TABLE results (
    key TEXT PRIMARY KEY, function TEXT NOT NULL, seed INTEGER NOT NULL, spec TEXT NOT NULL,
    result TEXT NOT NULL, arrays TEXT, digest TEXT NOT NULL);
PRAGMA application_id={_APPLICATION};
PRAGMA user_version={STORE_VERSION};
COMMIT;
"""
_WAIT = 1.0  # seconds for who only looks to be done
_RESTORE = "restore it from a copy, or move it away and run again"
_INSERT = "INSERT INTO results (key, function, seed, spec, result, arrays, digest) VALUES (?,?,?,?,?,?,?)"


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
        read_only: look without taking the file for this process; several may look at the same time.

    Raises:
        InputError: if another process writes to the file, or it is no results file, of another version, truncated
            or damaged, or cannot be opened; it is never changed then.
    """

    def __init__(self, path: StrPath, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.arrays = self.path.parent / f"{self.path.name}.arrays"
        self._writes = False
        self._made = False  # by this store: it goes again if something goes wrong before the first result
        self._folder = ExitStack()  # what was made for it
        self._database: sqlite3.Connection | None = None
        try:
            with self._explained("opened"):
                if read_only:
                    to_read(self.path, "results file")
                else:
                    self._folder.enter_context(made(self.path.parent))
                    to_write(unlinked(self.path, "results file", own=True), "results file")
                address = f"{self.path.resolve().as_uri()}?mode={'rw' if read_only else 'rwc'}"
                self._database = sqlite3.connect(address, timeout=_WAIT, isolation_level=None, uri=True)
                if not read_only:  # SQLite's own lock is kept until the end, and goes with this process
                    for statement in ("PRAGMA locking_mode=EXCLUSIVE", "BEGIN EXCLUSIVE", "ROLLBACK"):
                        self._execute(statement)
                self._check(new=not read_only)
                if not read_only:
                    self._writes = True
                    # of one process alone it needs no shared memory, so it is right on a network disk too
                    self._execute("PRAGMA journal_mode=WAL")
                    self._execute("PRAGMA synchronous=NORMAL")
                    if unlinked(self.arrays).is_dir():
                        sweep(self.arrays)
        except BaseException as error:
            self.__exit__(error)
            raise

    def get(self, key: str) -> dict[str, Any] | None:
        """The result of the trial with this key, or None; an InputError if it was damaged since it was written."""
        with self._explained("read"):
            row = self._execute("SELECT result, arrays, digest FROM results WHERE key = ?", (key,)).fetchone()
            return None if row is None else decode(self._checked(key, *row))

    def put(self, trial: Trial, result: Mapping[str, Any] | Encoded) -> None:
        """Keep a finished trial: when this returns, a kill of the process cannot lose it.

        A key that is there already is left as it is: trials are pure, so it is the same result. A disk that is full or
        not writable is an InputError; the trial is then not in the file, all others are.
        """
        if self._database is not None and not self._writes:
            raise InputError(f"{self.path} was opened to read only; open it with Store({str(self.path)!r}) to write.")
        encoded = result if isinstance(result, Encoded) else encode(result)
        with self._explained("written"):
            if not self.path.exists():
                raise InputError(f"{self.path} was moved or removed while this run wrote to it; run again.")
            if trial.key in self:
                return
            name = self._write_arrays(trial.key, encoded)
            row = (trial.key, trial.function, trial.seed, trial.canonical, encoded.text, name, encoded.digest)
            self._execute(_INSERT, row)

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
        if self._database is not None:
            with suppress(sqlite3.Error):  # it cannot even be read
                if self._writes:  # a file at rest is one file, which any disk and any read-only copy can open
                    self._execute("PRAGMA journal_mode=DELETE")
                if error is not None and self._made and not len(self):
                    self.path.unlink()
            self._database.close()
            self._database = None
            if self._writes:
                with suppress(OSError):
                    self.arrays.rmdir()  # when it is empty
        self._folder.close()

    def close(self) -> None:
        """Close the file and let others write to it; calling it again does nothing."""
        self.__exit__(None)

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        if self._database is None:
            raise InputError(f"{self.path} is closed; open it again with Store({str(self.path)!r}).")
        return self._database.execute(statement, values)

    def _check(self, new: bool) -> None:
        """Ours, of this version and whole, by SQLite's own check of every page; an empty one is begun if it may."""
        answer = self._execute("PRAGMA quick_check(1)").fetchone()[0]
        if answer != "ok":
            raise sqlite3.DatabaseError(" ".join(answer.split()))
        if new and not self._execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            assert self._database is not None
            self._database.executescript(_SCHEMA)
            self._made = True
        application, version = (
            self._execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if (application, version) != (_APPLICATION, STORE_VERSION):
            kind = f"a results file of version {version}" if application == _APPLICATION else "no results file"
            raise InputError(
                f"{self.path} is {kind}, and this epoch0 writes version {STORE_VERSION}; give another file name."
            )

    def _write_arrays(self, key: str, encoded: Encoded) -> str | None:
        """Put the array file in place whole and on the disk, before any row names it."""
        if encoded.arrays is None:
            return None
        unlinked(self.arrays).mkdir(exist_ok=True)
        return write_atomic(self.arrays / f"{key}.safetensors", encoded.arrays, "array file").name

    def _checked(self, key: str, text: str, arrays: str | None, digest: str) -> Encoded:
        """A row and its array file, exactly as they were written."""
        content = None
        if arrays is not None:
            file = self.arrays / arrays
            if not file.is_file():
                raise InputError(f"{file} is missing, and {self.path} refers to it; put it back beside the file.")
            content = file.read_bytes()
        encoded = Encoded(text, content)
        if encoded.digest != digest:
            damaged = self.path if arrays is None else f"{self.path} or {self.arrays / arrays}"
            told = f"{damaged} was changed or damaged after it was written (trial {key[:12]}...)"
            raise InputError(f"{told}; {_RESTORE}.")
        return encoded

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Every failure of the file as one error that names it and says what to do."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            hint = f"{error}; check the path, its permissions and the disk, or give another file"
            if "is full" in str(error):
                hint = "the disk is full; make room and run again: what is finished is kept and not run again"
            elif "is locked" in str(error):
                hint = "it is open to write in another run; wait for it to end, or give this run a file of its own and "
                hint += "merge the two afterwards"
            elif type(error) is sqlite3.DatabaseError:
                hint = f"it is no results file, or truncated or damaged ({error}); {_RESTORE}"
            raise InputError(f"{self.path} cannot be {what}: {hint}.") from error


@checked
def merge(sources: Iterable[StrPath] | StrPath, into: StrPath) -> int:
    """Join results files, such as those of a job array, into one; all or nothing.

    >>> for seed in (1, 2):
    ...     with Store(f"part{seed}.sqlite") as part:
    ...         part.put(Trial("package.module:name", {"width": 32}, seed), {"growth": 1.5})
    >>> merge(["part1.sqlite", "part2.sqlite"], into="merged.sqlite")
    2

    The sources are only read; ``into`` is made if it is missing. Gives how many results were added; those that were
    there already are not counted.

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
        target._execute("BEGIN")
        try:
            for source in sources:
                with Store(source, read_only=True) as part, part._explained("read"):
                    for row in part._execute("SELECT key, function, seed, spec, result, arrays, digest FROM results"):
                        key, function, seed, spec, *stored = row
                        there = target._execute("SELECT digest FROM results WHERE key = ?", (key,)).fetchone()
                        encoded = part._checked(key, *stored)
                        if there is None:
                            if name := target._write_arrays(key, encoded):
                                files.append(target.arrays / name)
                            target._execute(_INSERT, row)
                            added += 1
                        elif there != (encoded.digest,):
                            raise InputError(
                                f"{part.path} and {target.path} (or a file merged before) hold different results for "
                                f"the trial {function} seed={seed} spec={spec[:200]}: they come from different code "
                                "or machines; keep them apart, or run that trial again."
                            )
            target._execute("COMMIT")
        except BaseException:
            target._execute("ROLLBACK")
            for file in files:
                file.unlink(missing_ok=True)
            raise
    return added
