"""Price-Tanner Figure 6: the statements of appendix C.2 and section 4 about trained networks, decided."""

from collections.abc import Sequence

import numpy as np

from epoch0.experiments.claims import Claim, Verdict, at_least, equal_within_error, linear
from epoch0.papers.price_tanner.trained_table import (
    KINDS,
    Results,
    Trained,
    TrainedSetting,
    exact_random,
    gather,
    mean_and_error,
)

LINEAR_R2 = 0.95
"""Share of the variance a straight line has to explain where the paper says "linear" or "exponential with depth"."""

RESOLUTION = 0.05
"""Lines agree if differences of this relative size would have been seen and were not."""

LEAST_SETTINGS = 3
"""Initial sigma_w with two networks above the accuracy that the claims about trained networks need."""


def claims_a(setting: TrainedSetting, results: Results) -> list[Claim]:
    """The statements of appendix C.2 and section 4 about averages over lines."""
    gathered = [trained for trained in gather(setting, results) if trained.enough]
    if len(gathered) < LEAST_SETTINGS:
        return [_too_few(setting, "what holds for random networks survives training")]
    names = [_name(trained) for trained in gathered]
    claims = []
    for trained, name in zip(gathered, names, strict=True):
        mean, error = mean_and_error(trained.log_length["trained"][:, 1:])
        claims.append(
            linear(
                f"length in trained networks is exponential in depth, {name}",
                np.arange(2, len(mean) + 2),
                mean,
                error,
                int(trained.reached.sum()),
                least_r2=LINEAR_R2,
            )
        )
    stds = [trained.std["trained"].mean() for trained in gathered]
    for kind, name in enumerate(KINDS):
        mean, error = np.transpose([mean_and_error(trained.kind("trained", kind).mean(1)) for trained in gathered])
        samples = [int(trained.reached.sum()) for trained in gathered]
        text = f"growth in trained networks is linear in their sigma_w, lines {name}"
        claims.append(linear(text, stds, mean, error, samples, least_r2=LINEAR_R2))
    pairs = [[mean_and_error(trained.kind("trained", kind).mean(0)) for kind in (0, 1)] for trained in gathered]
    claims.append(
        at_least(
            "in trained networks lines between classes grow more than lines within a class",
            [between[0] - within[0] for within, between in pairs],
            [float(np.hypot(within[1], between[1])) for within, between in pairs],
            0.0,
            setting.spec.lines,
            names,
        )
    )
    return [*claims, _unlike_random(setting, gathered)]


def _unlike_random(setting: TrainedSetting, gathered: Sequence[Trained]) -> Claim:
    """Section 4: the factor "is not the same size in random nets as it is in trained nets with the same sigma_w".

    The opposite of agreement at every sigma_w; two curves that differ may still cross.
    """
    own = [mean_and_error(trained.growth["trained"].mean(1)) for trained in gathered]
    exact = [exact_random(setting, float(trained.std["trained"].mean())) for trained in gathered]
    agree = equal_within_error(
        "trained and random networks of equal sigma_w grow lines by the same factor",
        [[mean, value] for (mean, _), value in zip(own, exact, strict=True)],
        [[error, 0.0] for _, error in own],
        [[int(trained.reached.sum()), 1] for trained in gathered],
        resolution=RESOLUTION,
        settings=[_name(trained) for trained in gathered],
        groups=["trained", "random, exact"],
    )
    opposite: dict[Verdict, Verdict] = {"holds": "fails", "fails": "holds", "undecided": "undecided"}
    ratios = ", ".join(f"{mean / value:.2f}" for (mean, _), value in zip(own, exact, strict=True))
    evidence = f"trained over random: {ratios}; {agree.evidence}"
    text = "trained networks grow lines by another factor than random ones of equal sigma_w"
    return Claim(text, opposite[agree.verdict], evidence, agree.numbers, agree.needed)


def claims_b(setting: TrainedSetting, results: Results) -> list[Claim]:
    """The statements of appendix C.2 about single lines: they differ after training and agree before."""
    gathered = gather(setting, results)
    trained = [one for one in gathered if one.enough]
    text = "the growth factor depends on the line in trained networks"
    after = _too_few(setting, text)
    if len(trained) >= LEAST_SETTINGS:
        names = [_name(one) for one in trained]
        after = _differ(text, names, [_lines_agree(_name(one), [one], "trained") for one in trained])
    text = "the growth factor does not depend on the line in random networks"
    return [after, _lines_agree(text, gathered, "random")]


def _lines_agree(text: str, gathered: Sequence[Trained], state: str) -> Claim:
    """All lines have one growth factor, in every setting.

    All lines pass through the same networks, so what a network adds to all of them alike is taken out first.
    """
    means, errors, samples = [], [], []
    for trained in gathered:
        growth = trained.growth[state]
        own = growth - growth.mean(1, keepdims=True) + growth.mean()
        mean, error = mean_and_error(own)
        means.append(mean)
        errors.append(error)
        samples.append(np.full(mean.shape, len(growth)))
    names = [_name(trained) for trained in gathered]
    lines = [f"line {line + 1}" for line in range(len(means[0]))]
    return equal_within_error(text, means, errors, samples, resolution=RESOLUTION, settings=names, groups=lines)


def _differ(text: str, names: Sequence[str], agree: Sequence[Claim]) -> Claim:
    """The opposite of agreement, in every setting: holds if agreement fails in all, fails if it holds in one."""
    verdicts = [claim.verdict for claim in agree]
    if "holds" in verdicts:
        place = verdicts.index("holds")
        return Claim(text, "fails", f"not so: {agree[place].evidence}", agree[place].numbers)
    if all(verdict == "fails" for verdict in verdicts):
        place = int(np.argmax([claim.numbers["p"] for claim in agree]))
        evidence = f"in all {len(names)} settings, least clearly: {agree[place].evidence}"
        return Claim(text, "holds", evidence, agree[place].numbers)
    place = verdicts.index("undecided")
    least = agree[place]
    return Claim(text, "undecided", least.evidence, least.numbers, least.needed)


def _name(trained: Trained) -> str:
    return f"initial sigma_w {trained.initial:g}"


def _too_few(setting: TrainedSetting, text: str) -> Claim:
    target = f"{100 * setting.spec.accuracy:g} %"
    evidence = f"fewer than {LEAST_SETTINGS} initial sigma_w have two networks above {target} test accuracy"
    return Claim(text, "undecided", evidence)
