"""Weights of the verdict, written by ``benchmarks/bench_verdict.py --fit``; do not edit."""

_STEP = {"intercept": -2.0, "alignment": 3.0, "held": 2.0, "reached": 1.0, "growth": -1.0, "small input": 1.0}
_TRIAL = {**_STEP, "intercept": -4.0, "known": 1.5, "known seen": 0.5}
FITTED: dict[str, dict[str, dict[str, float]]] = {
    name: {
        "step 0": _STEP,
        "step 0 alone": {k: v for k, v in _STEP.items() if k != "held"},
        **{f"trial {n}": _TRIAL for n in (30, 60, 150)},
        **{f"trial {n} alone": {"intercept": -2.0, "drop": 4.0} for n in (30, 60, 150)},
    }
    for name in ("adam", "sgd")
}
