"""The results file: exact round trips, one writer, and a clear error for every way a file can be wrong."""

import contextlib
import hashlib
import json
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from epoch0.errors import InputError
from epoch0.experiments.encoding import decode, encode
from epoch0.experiments.experiment import Trial
from epoch0.experiments.store import STORE_VERSION, Store, merge, on_network

SMALL, LARGE = np.linspace(0, 1, 10), np.linspace(0, 1, 5000).reshape(50, 100)


def trial(seed=0, spec=None):
    return Trial("trial_functions:draw", spec or {"size": 3}, seed)


def filled(path, seeds=range(5), large=False):
    with Store(path) as store:
        for seed in seeds:
            store.put(trial(seed), {"value": seed / 7, "array": LARGE + seed if large else SMALL + seed})
    return path


def same(one, other):
    """Equal to the bit, NaN and -0.0 included, with equal types."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and one == other and str(one) == str(other)


dtypes = st.sampled_from(["bool", "int8", "int64", "uint64", "float16", "float32", "float64"])
arrays = dtypes.flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3), elements=hnp.from_dtype(
            np.dtype(dtype), **({"allow_nan": False} if "float" in dtype else {})  # a NaN's unused bits are not kept
        )
    )
)  # fmt: skip
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | arrays
names = st.text().filter(lambda name: name not in ("$array", "$file"))
results = st.dictionaries(
    names, st.recursive(leaves, lambda kids: st.lists(kids, max_size=3) | st.dictionaries(names, kids, max_size=3))
)


@given(results)
def test_results_round_trip_to_the_bit(result):
    encoded = encode(result)
    assert same(decode(encoded), result)
    assert encode(decode(encoded)) == encoded


def test_large_arrays_round_trip():
    for dtype in ("bool", "int16", "uint64", "float16", "float32", "float64"):
        array = (LARGE * 100).astype(dtype)
        result = {"a": [array, {"b": array[::2, ::-2]}], "c": math.nan}  # strides are not kept, values are
        encoded = encode(result)
        assert encoded.arrays is not None and len(encoded.text) < 300
        assert same(decode(encoded), {"a": [array, {"b": array[::2, ::-2].copy()}], "c": math.nan})


def test_numpy_scalars_and_tuples_become_plain():
    result = decode(encode({"a": np.float32(0.1), "b": np.int8(3), "c": np.bool_(True), "d": (1, 2)}))
    assert same(result, {"a": float(np.float32(0.1)), "b": 3, "c": True, "d": [1, 2]})


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"a": [object()]}, r"result\['a'\]\[0\] is a object"),
        ({"a": 1j}, "complex"),
        ({"a": np.array([1j])}, "dtype complex128"),
        ({"a": np.array(["x"])}, "dtype <U1"),
        ({1: 2}, "names are strings"),
        ({"$array": 2}, "names are strings other than"),
    ],
)
def test_what_cannot_be_kept_exactly_is_refused(result, words):
    with pytest.raises(InputError, match=words):
        encode(result)


@pytest.fixture(params=[False, True], ids=["local", "network"])
def network(request, monkeypatch):
    """Whether the disk is taken for one behind a network."""
    monkeypatch.setattr("epoch0.experiments.store.on_network", lambda folder: request.param)
    return request.param


def test_put_get_and_open_again(tmp_path, network):
    path = tmp_path / "new folder" / "results.sqlite"
    with Store(path) as store:
        assert len(store) == 0 and store.keys() == set() and store.get(trial().key) is None
        store.put(trial(1), {"x": 0.1, "large": LARGE})
        store.put(trial(2), {"x": np.float64(0.2)})
        assert trial(1).key in store and trial(3).key not in store
    with Store(path) as store:
        assert store.keys() == {trial(1).key, trial(2).key}
        assert same(store.get(trial(1).key), {"x": 0.1, "large": LARGE})
    left = sorted(p.name for p in path.parent.iterdir())
    assert left == ["results.sqlite", "results.sqlite.arrays"]
    assert [p.name for p in (path.parent / left[1]).iterdir()] == [f"{trial(1).key}.safetensors"]


def test_the_first_result_stays(tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        store.put(trial(), {"x": 1})
        store.put(trial(), {"x": 2})
        assert store.get(trial().key) == {"x": 1} and len(store) == 1


def test_a_closed_store(tmp_path):
    store = Store(tmp_path / "r.sqlite")
    store.close()
    store.close()
    with pytest.raises(InputError, match="is closed"):
        store.keys()


def test_a_second_writer_is_refused(tmp_path):
    path = tmp_path / "r.sqlite"
    with Store(path) as store:
        store.put(trial(), {"x": 1})
        with pytest.raises(InputError, match="open to write in another run"):
            Store(path)
        second = "from epoch0.experiments.store import Store; import sys; Store(sys.argv[1])"
        done = subprocess.run([sys.executable, "-c", second, str(path)], capture_output=True, text=True)
        assert done.returncode == 1 and "open to write in another run" in done.stderr
        with Store(path, read_only=True) as reader:  # looking is fine
            assert reader.get(trial().key) == {"x": 1}
            store.put(trial(1), {"x": 2})
            assert len(reader) == 2
            with pytest.raises(InputError, match="to read only"):
                reader.put(trial(2), {"large": LARGE})
    with Store(path) as store:
        assert len(store) == 2


def test_no_second_writer_whatever_is_removed_beside_the_file(tmp_path, monkeypatch):
    path = tmp_path / "r.sqlite"
    script = "from epoch0.experiments.store import Store; import sys; Store(sys.argv[1])"
    monkeypatch.setattr("epoch0.experiments.store.on_network", lambda folder: True)
    with Store(path) as store:
        store.put(trial(), {"x": 1})
        for beside in {*tmp_path.iterdir()} - {path}:
            beside.unlink()
        with Store(path, read_only=True), pytest.raises(InputError, match="open to write in another run"):
            Store(path)
        done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
        assert done.returncode == 1 and "open to write in another run" in done.stderr
        path.unlink()
        with Store(path), pytest.raises(InputError, match="was moved or removed while this run wrote to it"):
            store.put(trial(1), {"x": 2})


def test_of_those_who_make_a_file_at_once_one_writes(tmp_path):
    def write(path, seed, said):
        try:
            with Store(path) as store:
                store.put(trial(seed), {"x": seed})
                said.append(seed)
        except InputError as error:
            assert "open to write in another run" in str(error)

    for number in range(20):
        path, said = tmp_path / f"{number}" / "r.sqlite", []
        writers = [threading.Thread(target=write, args=(path, seed, said)) for seed in range(6)]
        for each in writers:
            each.start()
        for each in writers:
            each.join()
        with Store(path, read_only=True) as store:
            assert store.keys() == {trial(seed).key for seed in said} and said
        assert [each.name for each in path.parent.iterdir()] == ["r.sqlite"]


def test_what_fails_leaves_nothing(tmp_path):
    first = filled(tmp_path / "1.sqlite", range(3), large=True)
    into = tmp_path / "new" / "folder" / "all.sqlite"
    with pytest.raises(InputError, match="does not exist"):
        merge([first, tmp_path / "2.sqlite"], into)
    with pytest.raises(ZeroDivisionError), Store(into):
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match="does not exist"):
        merge([first, tmp_path / "2.sqlite"], filled(into, [7], large=True))
    assert [each.name for each in (into.parent / "all.sqlite.arrays").iterdir()] == [f"{trial(7).key}.safetensors"]
    with pytest.raises(ZeroDivisionError), Store(into):  # it was there before
        raise ZeroDivisionError
    with Store(into) as store:
        assert len(store) == 1


def test_a_killed_writer_leaves_its_results_and_no_lock(tmp_path):
    path = tmp_path / "r.sqlite"
    script = """
import sys
import numpy as np
from epoch0.experiments.experiment import Trial
from epoch0.experiments.store import Store
store = Store(sys.argv[1])
for seed in range(10**6):
    trial = Trial("trial_functions:draw", {"size": 3}, seed)
    store.put(trial, {"seed": seed, "array": np.arange(2000.0) + seed})
    print(seed, flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    lines = [writer.stdout.readline() for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    told = len(lines) + len(writer.stdout.readlines())
    writer.wait()
    writer.stdout.close()
    with Store(path) as store:
        assert told <= len(store) <= told + 1  # the last one may have been kept and not yet told
        for seed in range(len(store)):
            result = store.get(trial(seed).key)
            assert result is not None and same(result["array"], np.arange(2000.0) + seed)
    assert not list(tmp_path.rglob(".*"))


def test_half_a_change_that_a_kill_left_is_taken_back_by_who_only_reads(tmp_path):
    path = filled(tmp_path / "r.sqlite", range(50))
    with sqlite3.connect(path) as database:  # as a driver leaves it that is killed in the middle of a transaction
        database.executescript("PRAGMA cache_size=1; BEGIN; UPDATE results SET spec = spec || hex(zeroblob(3000))")
        for part in (path, journal := Path(f"{path}-journal")):
            shutil.copy(part, tmp_path / f"copy{part.name}")
        database.rollback()
    database.close()
    for part in (path, journal):
        os.replace(tmp_path / f"copy{part.name}", part)
    with Store(path, read_only=True) as store:
        assert len(store) == 50 and all(trial(seed).key in store for seed in range(50))
    assert not journal.exists()


def test_an_orphan_array_file_is_harmless(tmp_path):
    path = filled(tmp_path / "r.sqlite", [1], large=True)
    (tmp_path / "r.sqlite.arrays" / f"{trial(2).key}.safetensors").write_bytes(b"half")
    (tmp_path / "r.sqlite.arrays" / ".epoch0-0.partial").write_bytes(b"half")
    with Store(path) as store:
        assert store.get(trial(2).key) is None
        store.put(trial(2), {"array": LARGE})
        assert same(store.get(trial(2).key), {"array": LARGE})
    assert len(list((tmp_path / "r.sqlite.arrays").iterdir())) == 2


def foreign(path):
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode=wal")
        database.execute("CREATE TABLE notes (text)")
    database.close()


def other_version(path):
    filled(path)
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version={STORE_VERSION + 1}")
    database.close()


def cut(share):
    def damage(path):
        filled(path, range(200))
        os.truncate(path, int(path.stat().st_size * share))

    return damage


def scribbled(path):
    filled(path, range(200))
    with open(path, "r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 4096)


DAMAGES = {
    "foreign": (foreign, "SQLite file of another program"),
    "other version": (other_version, f"version {STORE_VERSION + 1}, and this epoch0 writes version {STORE_VERSION}"),
    "cut": (cut(0.5), "truncated or damaged"),
    "cut short": (cut(0.0005), "beginning is damaged"),
    "empty": (cut(0.0), "is empty"),
    "scribbled": (scribbled, "truncated or damaged"),
    "text": (lambda path: path.write_text("my notes\n" * 100), "no results file"),
    "folder": (lambda path: path.mkdir(), "is a folder"),
}


@pytest.mark.sample(11)
@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_wrong_file_is_one_clear_error_and_stays_as_it_is(tmp_path, name, read_only):
    damage, words = DAMAGES[name]
    path = tmp_path / "r.sqlite"
    damage(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(InputError, match=words) as caught:
        Store(path, read_only=read_only)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_changed_digit_is_noticed(tmp_path):
    path = filled(tmp_path / "r.sqlite")
    content = path.read_bytes()
    assert content.count(b"0.42857142857142855") == 1  # 3/7
    path.write_bytes(content.replace(b"0.42857142857142855", b"0.42857142857142856"))
    with Store(path) as store:
        assert store.get(trial(2).key) is not None
        with pytest.raises(InputError, match="changed or damaged after it was written"):
            store.get(trial(3).key)


def test_missing_or_damaged_array_files_are_noticed(tmp_path):
    path = filled(tmp_path / "r.sqlite", range(3), large=True)
    folder = tmp_path / "r.sqlite.arrays"
    (folder / f"{trial(0).key}.safetensors").unlink()
    os.truncate(folder / f"{trial(1).key}.safetensors", 1000)
    with Store(path) as store:
        with pytest.raises(InputError, match=f"{trial(0).key}.safetensors is missing"):
            store.get(trial(0).key)
        with pytest.raises(InputError, match="changed or damaged"):
            store.get(trial(1).key)
        assert store.get(trial(2).key) is not None


@pytest.mark.sample(20)
@pytest.mark.parametrize("text", ["", "[" * 5000, '{"a":{"$file":"9"}}', '{"$array":[1],"dtype":"x","shape":[1]}',
                                  '{"$array":[1],"dtype":"float64","shape":[7]}', b"{}", 3.5])  # fmt: skip
@pytest.mark.parametrize("arrays", [None, "../r.sqlite", b"a\0", "own", "spoilt"])
def test_rows_that_nobody_here_wrote_are_one_error(tmp_path, text, arrays):
    """With a checksum that is right."""
    path = filled(tmp_path / "r.sqlite", [1], large=True)
    content, file = b"", tmp_path / "r.sqlite.arrays" / f"{trial(1).key}.safetensors"
    if arrays in ("own", "spoilt"):
        content = file.read_bytes() if arrays == "own" else b"\x02" + bytes(7) + b"{}" * 9
        file.write_bytes(content)
        arrays = file.name
    told = text if isinstance(text, bytes) else str(text).encode()
    with sqlite3.connect(path) as database:
        values = text, arrays, hashlib.sha256(told + content).hexdigest()
        database.execute("UPDATE results SET result=?, arrays=?, digest=?", values)
    database.close()
    with Store(path) as store, pytest.raises(InputError, match="damaged") as caught:
        store.get(trial(1).key)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    with contextlib.suppress(InputError):
        merge(path, tmp_path / "all.sqlite")


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file' cannot be made: File exists"):
        Store(tmp_path / "file" / "r.sqlite")
    with pytest.raises(InputError, match="does not exist"):
        Store(tmp_path / "r.sqlite", read_only=True)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("large", "network"), [(False, False), (False, True), (True, False)])
def test_a_full_disk_is_one_error_and_loses_nothing(tmp_path, large, network):
    """A limit on the size of files stands for the full disk: writing fails in the middle, as it does there."""
    script = f"""
import resource, sys
import numpy as np
from epoch0.errors import InputError
from epoch0.experiments.experiment import Trial
from epoch0.experiments import store as module
module.on_network = lambda folder: {network}
store = module.Store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
try:
    for seed in range(1000):
        size = 2000 * (seed + 1) if {large} else 500
        store.put(Trial("trial_functions:draw", {{"size": 3}}, seed), {{"array": np.arange(size) / 7}})
except InputError as error:
    print(seed, error)
    print(len(store), sorted(path.name for path in store.arrays.glob("*.tmp")))
"""
    path = tmp_path / "r.sqlite"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    seed = int(first.split()[0])
    assert seed > 0 and str(path) in first and ("make room" in first or "check the path" in first)
    assert second == f"{seed} []"
    with Store(path) as store:
        assert len(store) == seed and all(store.get(trial(i).key) for i in range(seed))
        store.put(trial(seed), {"array": LARGE})


def test_merge(tmp_path):
    first = filled(tmp_path / "1.sqlite", range(5), large=True)
    second = filled(tmp_path / "2.sqlite", range(3, 9), large=True)
    assert merge([first, second], tmp_path / "all.sqlite") == 9
    assert merge([first, second], tmp_path / "all.sqlite") == 0
    assert merge(second, first) == 4
    shutil.rmtree(tmp_path / "2.sqlite.arrays")
    for path in (tmp_path / "all.sqlite", first):
        with Store(path) as store:
            for seed in range(9):
                assert same(store.get(trial(seed).key), {"value": seed / 7, "array": LARGE + seed})


@pytest.mark.parametrize("large", [False, True])
def test_results_that_say_the_same_merge(tmp_path, large):
    """In another order, with another NaN and with -0.0; what differs in a bit, a type or a shape does not."""
    numbers = LARGE.ravel() if large else np.arange(4.0)

    def held(name, result):
        with Store(tmp_path / name) as store:
            store.put(trial(0), result)
        return tmp_path / name

    first = held("1.sqlite", {"a": np.r_[numbers, math.nan, 0.0], "b": {"c": math.nan, "d": [1, 0.0]}})
    same = {"b": {"d": [1, -0.0], "c": -math.nan}, "a": np.r_[numbers, -math.nan, -0.0]}
    assert merge([first, held("2.sqlite", same)], tmp_path / "all.sqlite") == 1
    more, array = np.nextafter(numbers, np.inf), same["a"]
    others = [{"a": np.r_[more, math.nan, 0.0]}, {"a": array[None]}, {"a": array.astype(np.float32)}, {"b": {}}]
    for number, change in enumerate([*others, {"b": {"c": 0.0, "d": [1, 0.0]}}, {"b": {"c": math.nan, "d": [1, 0]}}]):
        other = held(f"other{number}.sqlite", {**same, **change})
        with pytest.raises(InputError, match="different results"):
            merge([first, other], tmp_path / "none" / "all.sqlite")
        assert not (tmp_path / "none").exists()


def test_merge_refuses_contradictions_and_adds_nothing_then(tmp_path):
    first = filled(tmp_path / "1.sqlite", range(5))
    second = filled(tmp_path / "2.sqlite", range(10, 20))
    with Store(second) as store:
        store.put(trial(3), {"value": 0})
    with pytest.raises(InputError, match="different results for the trial trial_functions:draw seed=3"):
        merge([second], first)
    with Store(first) as store:
        assert len(store) == 5
    with pytest.raises(InputError, match=r"3\.sqlite' cannot be read: it does not exist"):
        merge([filled(tmp_path / "4.sqlite", range(20, 30)), tmp_path / "3.sqlite"], first)
    with Store(first) as store:
        assert len(store) == 5


def test_network_file_systems_are_seen(tmp_path):
    mounts = tmp_path / "mounts"
    lines = ["/dev/sda / ext4 rw 0 0", f"server:/x {tmp_path} nfs4 rw 0 0", f"/dev/sdb {tmp_path}/local ext4 rw 0 0"]
    mounts.write_text("\n".join(lines))
    (tmp_path / "local").mkdir()
    (tmp_path / "sub").mkdir()
    assert on_network(tmp_path, str(mounts)) and on_network(tmp_path / "sub", str(mounts))
    assert not on_network(tmp_path / "local", str(mounts)) and not on_network("/", str(mounts))
    assert on_network("/", str(tmp_path / "no such table"))


def test_journal_modes(tmp_path, network):
    path = tmp_path / "r.sqlite"
    with Store(path) as store:
        store.put(trial(), {"x": 1})
        assert path.with_name(path.name + "-wal").exists() != network
    assert path.read_bytes()[18:20] == b"\x01\x01"  # at rest: one file, no write-ahead log


def test_a_commit_is_cheap(tmp_path):
    """A thousand small results in seconds, not minutes: what is kept is kept trial by trial."""
    with Store(tmp_path / "r.sqlite") as store:
        begun = time.perf_counter()
        for seed in range(1000):
            store.put(trial(seed), {"value": seed / 7})
        assert time.perf_counter() - begun < 20


def test_results_are_readable_by_other_programs(tmp_path):
    path: Path = filled(tmp_path / "r.sqlite", [3])
    database = sqlite3.connect(path)
    function, seed, spec, result = database.execute("SELECT function, seed, spec, result FROM results").fetchone()
    database.close()
    assert (function, seed, json.loads(spec)) == ("trial_functions:draw", 3, {"size": 3})
    assert json.loads(result)["value"] == 3 / 7


def test_a_file_to_merge_that_is_missing_is_not_said_to_be_the_new_one(tmp_path):
    with pytest.raises(InputError, match="cannot be read: it does not exist") as caught:
        merge([tmp_path / "part1.sqlite"], tmp_path / "part.sqlite")
    assert "Did you mean" not in str(caught.value) and not list(tmp_path.iterdir())
