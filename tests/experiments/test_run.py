"""Running trials: only what is missing, the same for any workers, and nothing finished is lost to any kill."""

import io
import os
import pickle
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import trial_functions
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.experiments import engine as engine_module
from epoch0.experiments import store as store_module
from epoch0.experiments.encoding import decode, encode
from epoch0.experiments.engine import Engine, one_thread
from epoch0.experiments.experiment import Trial
from epoch0.experiments.run import Progress, TrialError, TrialInputError, run
from epoch0.experiments.store import Store, merge

TESTS = str(Path(__file__).parents[1])
DRIVER = f"""
import signal, sys
sys.path.insert(0, {TESTS!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
from epoch0.experiments.experiment import Trial
from epoch0.experiments.run import run
from epoch0.experiments.store import Store
trials = [Trial("trial_functions:sleep", {{"seconds": 0.3, "marks": sys.argv[1]}}, seed) for seed in range(8)]
try:
    with Store(sys.argv[2]) as store:
        results = run(trials, store, workers=2)
except KeyboardInterrupt:
    sys.exit("interrupted")
print([result["seed"] for result in results])
"""


@pytest.fixture(scope="module")
def two():
    """Two workers for most tests of this file: processes take a second to start. They have an accelerator each."""
    with pytest.MonkeyPatch.context() as patch, Engine(workers=2, accelerators=2) as engine:
        patch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
        yield engine


def trials(function, count, first=0, **spec):
    return [Trial(f"trial_functions:{function}", spec, seed) for seed in range(first, first + count)]


def executions(folder):
    """Seed -> how often its trial was carried out to the mark."""
    return {int(mark.name): len(mark.read_text().split()) for mark in folder.iterdir() if mark.name.isdigit()}


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end between the opening and the reading
        return False


# the same results, once each ----------------------------------------------------------------------------------------


def test_results_are_those_of_the_function_whatever_the_workers(two, tmp_path):
    wanted = trials("draw", 12, size=40, law=Gaussian(0.5))
    by_two = run(wanted, engine=two)
    by_one = run(wanted[::-1], workers=1)[::-1]
    with one_thread():
        here = [decode(encode(trial_functions.draw(trial.spec, trial.seed))) for trial in wanted]
    as_bytes = [[encode(result) for result in results] for results in (by_two, by_one, here)]
    assert as_bytes[0] == as_bytes[1] == as_bytes[2]
    assert by_two[0]["law"] == "Gaussian(std=0.5)" and by_two[0]["product"].shape == (40, 40)


def test_only_what_is_missing_runs(two, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    with Store(tmp_path / "r.sqlite") as store:
        first = run(trials("draw", 5, marks=str(marks)), store, engine=two)
        twice = trials("draw", 9, marks=str(marks))
        both = run([*twice, *twice[::2]], store, engine=two)
        assert [result["seed"] for result in both] == [*range(9), *range(0, 9, 2)]
        assert [encode(a) for a in both[:5]] == [encode(a) for a in first]
        assert executions(marks) == dict.fromkeys(range(9), 1)
        assert len(store) == 9


def test_nothing_missing_starts_nothing(tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        for trial in trials("nothing", 3):
            store.put(trial, {"seed": trial.seed})
        engine = Engine(scheduler="tcp://127.0.0.1:1")
        assert run(trials("nothing", 3), store, engine=engine) == [{"seed": seed} for seed in range(3)]
    assert run([]) == []


def test_small_trials_are_cheap(two):
    begun = time.perf_counter()
    results = run(trials("nothing", 3000), engine=two)
    assert [result["seed"] for result in results] == list(range(3000))
    assert time.perf_counter() - begun < 15  # 5 ms a trial; measured: 1 ms, and 1.5 ms for one dask task a trial


@pytest.mark.slow
def test_a_worker_has_one_thread_and_this_process_keeps_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    before, main, threads = dict(os.environ), dict(sys.modules["__main__"].__dict__), torch.get_num_threads()
    (seen,) = run(trials("surroundings", 1), workers=1)
    assert (seen["threads"], seen["openmp"], seen["interrupt_ignored"]) == (1, "1", True)
    assert seen["process"] != os.getpid() and seen["main_file"] is None
    assert dict(os.environ) == before and torch.get_num_threads() == threads
    now = sys.modules["__main__"].__dict__
    assert all(now[name] is main[name] for name in ("__spec__", "__file__") if name in main)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_a_worker_keeps_memory_for_the_next_step(monkeypatch):
    spec = {"steps": 11, "numbers": 500_000, "pieces": 10}
    pages = 10 * spec["pieces"] * spec["numbers"] * 8 // 4096  # of ten steps, if each gave all of it back
    (seen,) = run([Trial("trial_functions:faults", spec, 0)], workers=1)
    assert seen["faults"] < 0.02 * pages
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")  # what the user has set counts
    (seen,) = run([Trial("trial_functions:faults", spec, 1)], workers=1)
    assert seen["kept"] == "65536" and seen["faults"] > 0.5 * pages


def test_one_thread_is_put_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_script_without_a_main_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {TESTS!r}); print('once')\n"
        "from epoch0.experiments.run import run, Trial\n"
        "print(run([Trial('trial_functions:nothing', {}, 4)], workers=1))\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("once\n[{'seed': 4}]\n", "", 0)


def test_shards_and_merge(two, tmp_path):
    wanted = trials("draw", 7)
    for part in (1, 2, 3):
        with Store(tmp_path / f"{part}.sqlite") as store:
            results = run(wanted, store, engine=two, shard=f"{part}/3")
            assert [result["seed"] for result in results] == list(range(part - 1, 7, 3))
    assert merge([tmp_path / f"{part}.sqlite" for part in (1, 2, 3)], tmp_path / "all.sqlite") == 7
    with Store(tmp_path / "all.sqlite") as store:
        whole = run(wanted, store, engine=Engine(scheduler="tcp://127.0.0.1:1"))  # nothing is missing
    assert [encode(result) for result in whole] == [encode(result) for result in run(wanted, engine=two)]


# what goes wrong inside ---------------------------------------------------------------------------------------------


def test_a_trial_that_raises_does_not_stop_the_others(two, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    wanted = trials("fail", 20, bad=[3, 11], unkept=[5], marks=str(marks))
    with Store(tmp_path / "r.sqlite") as store:
        with pytest.raises(TrialError, match="3 of 20 trials failed") as caught:
            run(wanted, store, engine=two)
        assert not isinstance(caught.value, InputError)
        assert caught.value.trial == wanted[3] and caught.value.failed == 3
        assert caught.value.cause == "ZeroDivisionError: no way" and "in fail" in caught.value.traceback
        assert "trial_functions:fail seed=3 spec=" in str(caught.value) and '"bad":[3,11]' in str(caught.value)
        assert len(store) == 17
        with pytest.raises(TrialError, match="3 of 3 trials failed"):
            run(wanted, store, engine=two)  # what finished is not run again
        assert executions(marks) == {seed: 2 if seed in (3, 5, 11) else 1 for seed in range(20)}


def test_a_trial_that_refuses_its_input(two):
    with pytest.raises(InputError, match="the data set is absent; fetch it") as caught:
        run(trials("fail", 3, bad=[0, 1, 2], input=True), engine=two)
    assert isinstance(caught.value, TrialInputError) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_worker_killed_by_its_trial_is_replaced(two, tmp_path, capfd):
    wanted = trials("die", 40, bad=[7, 8], once=True, marks=str(tmp_path))
    assert [result["seed"] for result in run(wanted, engine=two)] == list(range(40))
    assert capfd.readouterr() == ("", "")


def test_a_trial_that_always_kills_its_worker_is_named(two, tmp_path):
    wanted = trials("die", 12, bad=[4], marks=str(tmp_path))
    with Store(tmp_path / "r.sqlite") as store:
        with pytest.raises(TrialError, match="killed its worker process 3 times") as caught:
            run(wanted, store, engine=two)
        assert caught.value.trial == wanted[4] and caught.value.failed == 1
        assert len(store) == 11
    # in company at first, to find out who it is, then three times alone
    assert executions(tmp_path)[4] in (3, 4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("workers", [1, 2])
def test_trials_that_crash_at_once_are_reported_by_their_keys_and_all_others_finish(tmp_path, workers):
    wanted = trials("die", 30, bad=[0, 13, 29], how=signal.SIGSEGV, marks=str(tmp_path))
    with Store(tmp_path / "r.sqlite") as store:
        with pytest.raises(TrialError, match="3 of 30 trials failed") as caught:
            run(wanted, store, workers=workers)
        assert len(store) == 27
    bad = [wanted[seed].key for seed in (0, 13, 29)]
    assert [*caught.value.causes] == bad
    assert all("exit status -11 (SIGSEGV)" in cause for cause in caught.value.causes.values())
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and vars(again) == vars(caught.value) and type(again) is TrialError


def test_whatever_a_trial_does_to_its_process_the_others_finish(tmp_path):
    how = dict(enumerate(["exit", "odd", "interrupt", "memory", "long", "babble", "mute", "fork"]))
    wanted = trials("misbehave", 14, how={str(seed): what for seed, what in how.items()}, marks=str(tmp_path))
    others = {*psutil.Process().children()}
    with Store(tmp_path / "r.sqlite") as store:
        with pytest.raises(TrialError, match="6 of 14 trials failed") as caught:
            run(wanted, store, workers=2)
        assert store.keys() == {trial.key for trial in wanted[6:]}
    causes = [caught.value.causes[trial.key] for trial in wanted[:6]]
    told = (
        "(exit status 0: ",
        "Odd, which cannot",
        "KeyboardInterrupt",
        "MemoryError",
        "ValueError: two",
        "-9 (SIGKILL)",
    )
    assert all(words in cause for words, cause in zip(told, causes, strict=True))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 3000
    assert {*psutil.Process().children()} == others and not alive(int((tmp_path / "child").read_text()))


def test_a_full_disk_stops_the_run_with_one_error(tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        store._execute("PRAGMA max_page_count=6")
        with pytest.raises(InputError, match="the disk is full; make room and run again"):
            run(trials("draw", 300, size=20), store, workers=1)
        kept = len(store)
        assert 0 < kept < 300
        store._execute("PRAGMA max_page_count=100000")
        assert len(run(trials("draw", kept + 1, size=20), store, workers=1)) == kept + 1


# kills from outside -------------------------------------------------------------------------------------------------


def test_kill_9_of_a_worker_loses_nothing(two, tmp_path):
    """The worker that runs trial 3 is killed in the middle of it."""

    def kill():
        until((tmp_path / "begun3").exists)
        time.sleep(0.05)
        os.kill(int((tmp_path / "begun3").read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    results = run(trials("sleep", 8, seconds=0.25, marks=str(tmp_path)), engine=two)
    killer.join()
    assert [result["seed"] for result in results] == list(range(8))
    assert executions(tmp_path) == dict.fromkeys(range(8), 1)


@pytest.mark.slow
def test_workers_that_are_killed_while_they_start(monkeypatch):
    others = {*psutil.Process().children()}
    with Engine(workers=2) as engine:
        engine.start()
        until(lambda: len({*psutil.Process().children()} - others) == 2)
        for starting in {*psutil.Process().children()} - others:
            starting.kill()
        assert len(run(trials("nothing", 4), engine=engine)) == 4
        for idle in {*psutil.Process().children()} - others:
            idle.kill()
        assert len(run(trials("nothing", 4), engine=engine)) == 4
    monkeypatch.setattr("epoch0.experiments.engine._WORKER", "raise SystemExit(3)")
    with pytest.raises(InputError, match=r"5 ended before they were ready, the last with exit status 3\.$"):
        run(trials("nothing", 4), workers=2)


def test_no_other_user_can_reach_a_run(two, tmp_path):
    """Nothing listens: work could else be given to it by anybody on the machine."""
    run(trials("nothing", 4), engine=two)
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    open_ones = [connection for process in processes for connection in process.net_connections(kind="all")]
    assert len(processes) >= 3 and len(open_ones) >= 4
    named = [one for one in open_ones if isinstance(one.laddr, str) and one.laddr]  # of Unix: a pair has no name
    assert named + [one for one in open_ones if one.status == psutil.CONN_LISTEN] == []


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_stopped_driver_keeps_what_finished(tmp_path, how):
    marks, path = tmp_path / "marks", tmp_path / "r.sqlite"
    marks.mkdir()
    command = [sys.executable, "-c", DRIVER, str(marks), str(path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    driver = subprocess.Popen(command, start_new_session=True, **pipes)
    until(lambda: len(executions(marks)) >= 3)
    workers, children = (
        {int(mark.read_text()) for mark in marks.glob(f"{name}*") if mark.read_text()} for name in ("begun", "child")
    )
    assert len(workers) == 2 and all(map(alive, children))
    if how is signal.SIGINT:
        os.killpg(driver.pid, how)  # as a terminal does it: to the driver and its workers
    else:
        driver.send_signal(how)
    out, err = driver.communicate(timeout=30)
    until(lambda: not any(map(alive, workers | children)), seconds=10)
    if how is signal.SIGINT:
        assert (driver.returncode, out, err.strip()) == (1, "", "interrupted")
    finished = executions(marks)
    with Store(path) as store:
        kept = len(store)
    assert 1 <= kept <= len(finished) < 8
    assert len(finished) - kept <= 2  # a trial that had ended but not yet been reported: one a worker

    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[0, 1, 2, 3, 4, 5, 6, 7]\n", "")
    again = [seed for seed, times in executions(marks).items() if times > 1]
    assert len(again) <= len(finished) - kept


def test_a_worker_whose_driver_is_gone_takes_what_its_trial_started_along(tmp_path):
    ours, theirs = Pipe()
    command = [sys.executable, "-P", "-c", engine_module._WORKER, str(theirs.fileno()), *sys.path]
    worker = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
    theirs.close()
    with ours:
        assert ours.recv() == "ready"
        (one,) = trials("sleep", 1, seconds=60, marks=str(tmp_path))
        ours.send((one.function, one.canonical, one.seed))
        until(lambda: (tmp_path / "begun0").exists())
    assert worker.wait(30) == -signal.SIGKILL
    until(lambda: not alive(int((tmp_path / "child0").read_text())))


def test_ctrl_c_in_this_process_keeps_what_finished(tmp_path):
    def interrupt():
        until(lambda: len(executions(tmp_path)) >= 2)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    with Store(tmp_path / "r.sqlite") as store, Engine(workers=1) as engine:
        sender.start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            short, long = trials("sleep", 2, seconds=0.2, marks=str(tmp_path)), trials("sleep", 1, 9, seconds=60)
            run([*short, *long], store, engine=engine)
        sender.join()
        assert time.monotonic() - begun < 20 and len(store) == 2
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert len(run(trials("sleep", 3, seconds=0.0), store, engine=engine)) == 3  # the engine can be used again


# a scheduler elsewhere, and wrong arguments -------------------------------------------------------------------------


def test_a_scheduler_address(tmp_path):
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0", protocol="tcp", memory_limit=0
    ) as cluster:
        with Store(tmp_path / "r.sqlite") as store:
            results = run(trials("draw", 6), store, scheduler=cluster.scheduler_address)
        assert [result["seed"] for result in results] == list(range(6))
        assert cluster.scheduler.workers  # the cluster is not ours to close


def test_two_clusters_share_a_sweep(tmp_path):
    """What docs/experiments.md does with two clusters of SLURM: a shard for each, and one file in the end."""
    from distributed import LocalCluster

    here = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0", "memory_limit": 0}
    with LocalCluster(**here, protocol="tcp") as first, LocalCluster(**here, protocol="tcp") as second:
        for part, cluster in enumerate((first, second), start=1):
            with Store(tmp_path / f"part{part}.sqlite") as store:
                run(trials("draw", 7), store, scheduler=cluster.scheduler_address, shard=f"{part}/2")
                assert len(store) in (3, 4)
    merge([tmp_path / "part1.sqlite", tmp_path / "part2.sqlite"], tmp_path / "all.sqlite")
    with Store(tmp_path / "all.sqlite") as store:
        found = run(trials("draw", 7), store, scheduler="tcp://127.0.0.1:1")  # nothing is missing: nobody is asked
    assert [encode(one) for one in found] == [encode(one) for one in run(trials("draw", 7), workers=1)]


def test_a_scheduler_that_goes_away(tmp_path):
    script = """
import sys, time
from distributed import LocalCluster
sys.path.insert(0, sys.argv[1])
with LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address=":0") as cluster:
    print(cluster.scheduler_address, flush=True)
    time.sleep(60)
"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", script, TESTS], **pipes) as elsewhere:
        address = elsewhere.stdout.readline().strip()

        def kill():
            until(lambda: len(executions(tmp_path)) >= 1)
            elsewhere.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(InputError, match=f"the scheduler at {address} went away; run again"):
            run(trials("sleep", 8, seconds=0.3, marks=str(tmp_path)), scheduler=address)
        killer.join()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere at all", "tcp://127.0.0.1"])
def test_a_scheduler_that_does_not_answer(address, tmp_path, monkeypatch):
    monkeypatch.setattr("epoch0.experiments.engine._PATIENCE", 1.0)
    with Store(tmp_path / "r.sqlite") as store:
        with pytest.raises(InputError, match=f"no scheduler answers at '{address}'"):
            run(trials("nothing", 1), store, scheduler=address)
        assert len(store) == 0


@pytest.mark.parametrize("workers", [0, -1, True])
def test_bad_workers(workers):
    with pytest.raises(InputError, match=f"workers={workers}: give an integer >= 1"):
        run(trials("nothing", 1), workers=workers)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workers": 1, "scheduler": "tcp://127.0.0.1:1"}, "give one"),
        ({"workers": 1, "engine": Engine()}, "the engine has its own workers"),
        ({"shard": "3"}, "not of the form i/n"),
        ({"shard": "0/3"}, "not of the form i/n"),
        ({"shard": "4/3"}, "not of the form i/n"),
        ({"shard": "a/3"}, "not of the form i/n"),
    ],
)
def test_bad_arguments(arguments, words):
    with pytest.raises(InputError, match=words):
        run(trials("nothing", 1), **arguments)


def test_a_function_that_is_not_there_is_told_before_anything_starts():
    with pytest.raises(InputError, match=r"has no 'nothin'\. Did you mean 'nothing'"):
        run(trials("nothin", 1), scheduler="tcp://127.0.0.1:1")


# progress -----------------------------------------------------------------------------------------------------------


def test_nothing_is_printed_by_default(two, capfd):
    run(trials("draw", 5), engine=two)
    assert capfd.readouterr() == ("", "")


def test_progress_in_a_log(two, tmp_path):
    log = io.StringIO()
    with Store(tmp_path / "r.sqlite") as store:
        run(trials("nothing", 3), store, engine=two)
        run(trials("nothing", 40), store, engine=two, progress=Progress("fig3b", log))
    lines = log.getvalue().splitlines()
    assert lines[0] == "fig3b: 3 of 40 done (7 %)" and len(lines) == 2
    assert re.fullmatch(r"fig3b: 40 of 40 done \(100 %\), 3 of them before, \d+ s", lines[1])


def test_progress_lines_are_few_and_tell_the_time_left(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("epoch0.experiments.run.time.monotonic", lambda: now[0])
    log = io.StringIO()
    progress = Progress("fig2", log, every=5)
    progress.begin(1000, 0)
    for _ in range(400):
        now[0] += 1.0
        progress.advance()
    progress.end()
    lines = log.getvalue().splitlines()
    assert len(lines) == 1 + 400 // 5 + 1
    assert lines[1] == "fig2: 5 of 1000 done (0 %), 16 min 35 s left"
    assert lines[-1] == "fig2: 400 of 1000 done (40 %), 10 min 00 s left"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal(two):
    screen = Terminal()
    run(trials("nothing", 20), engine=two, progress=Progress("fig3b", screen))
    assert "fig3b" in screen.getvalue() and "20/20" in screen.getvalue()


@pytest.mark.slow
def test_the_largest_array_is_still_exact_through_a_worker(two, tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        (result,) = run(trials("surroundings", 1, size=100_000), store, engine=two)
    assert np.array_equal(result["array"], np.arange(100_000))
    assert store_module.STORE_VERSION == 1 and len(list((tmp_path / "r.sqlite.arrays").iterdir())) == 1


def visible(engine: Engine) -> set[str]:
    """The accelerators that the processes see, one each."""
    by_process: dict[int, set[str]] = {}
    for result in run(trials("visible_devices", 4, seconds=0.5), engine=engine):
        by_process.setdefault(result["process"], set()).add(result["visible"])
    assert all(len(found) == 1 for found in by_process.values())  # a process keeps to one
    return set().union(*by_process.values())


@pytest.mark.slow
def test_processes_share_accelerators(two) -> None:
    """Those that took the place of killed ones too."""
    assert visible(two) == {"5", "7"}


@pytest.mark.slow
def test_without_a_list_accelerators_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with Engine(workers=2, accelerators=2) as engine:
        assert visible(engine) == {"0", "1"}
