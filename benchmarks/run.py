"""``make bench``: every speed claim as a ratio of CPU seconds of one thread, both sides in one run."""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import resource
import subprocess
import sys

import bench_data
import bench_faults
import bench_initialize
import bench_length
import bench_lengths
import bench_mean_field
import bench_planes
import bench_prune
import bench_prune_masks
import bench_regions
import bench_stacked
import bench_train
import bench_transitions
import bench_verdict

HEAVY = ("torch", "matplotlib", "dask", "distributed", "scipy.stats", "pandas")


def child_seconds(*command: str, runs: int = 5) -> float:
    """Least CPU seconds of a command over several runs: noise only ever adds."""
    seconds = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def start_up() -> None:
    """Start of the command line against a bare interpreter, and what ``import epoch0`` loads."""
    shown, bare = child_seconds(sys.executable, "-m", "epoch0", "--help"), child_seconds(sys.executable, "-c", "pass")
    print(f"epoch0 --help: {shown:.2f} CPU s (at most 0.3), {shown / bare:.0f} times a bare interpreter")
    code = f"import sys, epoch0; print([name for name in {HEAVY} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    print(f"import epoch0 loads of {', '.join(HEAVY)}: {loaded if loaded != '[]' else 'none'}")


if __name__ == "__main__":
    start_up()
    bench_length.main()
    bench_lengths.main()
    bench_train.main()
    bench_stacked.main()
    bench_data.main()
    bench_mean_field.main()
    bench_initialize.main()
    bench_regions.main()
    bench_planes.main()
    bench_transitions.main()
    bench_prune.main()
    bench_prune_masks.main()
    bench_verdict.main()
    bench_faults.report()
