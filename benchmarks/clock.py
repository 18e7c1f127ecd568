"""The clock of all benchmarks: CPU seconds of this process, which other work on the machine hardly changes."""

import time
from collections.abc import Callable


def cpu_seconds(run: Callable[[], object], runs: int = 1) -> float:
    """Least CPU seconds of several runs: noise only ever adds."""
    found = []
    for _ in range(runs):
        before = time.process_time()
        run()
        found.append(time.process_time() - before)
    return min(found)


def peak_bytes() -> int:
    """Largest memory of this process so far; ru_maxrss would begin with that of the process that started it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
