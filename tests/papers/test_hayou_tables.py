"""Hayou's accuracy tables: printed numbers, winners and ties, and claims that come out each way on made-up runs."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epoch0.experiments.claims import VERDICTS
from epoch0.papers import catalogue
from epoch0.papers.hayou import tables
from epoch0.papers.hayou.protocol import METHODS, Network, Recipe, run
from epoch0.papers.hayou.tables import (
    PUBLISHED,
    UNCLEAR,
    WINNERS,
    Entry,
    joined,
    panel,
    winners,
)
from epoch0.papers.trials import EXTENTS
from pictures import whole_picture

TABLES = ("tab1", "tab2", "tab3", "tab6", "tab8", "tab9", "tab10")
BASE = Recipe(Network("resnet", 8, 0.25), "digits", "snip", 0.5, 1, 64, augment=False, examples=60, tested=50)
DEEPER = replace(BASE, network=Network("resnet", 14, 0.25))


def artifact_of(name):
    return catalogue.find(f"hayou/{name}")


def made_up(setting, level, *, dead=0, seed=0):
    """Results as runs would give them; ``level(recipe, method, sparsity)``: mean and sd of the accuracy in percent."""
    noise = np.random.default_rng(seed)
    results = []
    for trial in setting.trials():
        mean, sd = level(trial.spec, trial.spec.method, trial.spec.sparsity)
        percent = mean + sd * noise.standard_normal()
        results.append(
            {
                "accuracy": percent / 100,
                "best": percent / 100,
                "chance": 0.1,
                "dead": ["x"] * dead,
                "on_paths": 100 if mean > 10 else 0,
                "diverged": False,
            }
        )
    return results


def panels(setting):
    return [setting, *setting.also.values()]


def claims_of(setting, results, name="tab1"):
    return artifact_of(name).decided(setting, results)[1]


def verdicts(claims):
    return {claim.text: claim.verdict for claim in claims}


def verdict(claims, words):
    found = [claim.verdict for claim in claims if words in claim.text]
    assert len(found) == 1, (words, [claim.text for claim in claims])
    return found[0]


# ---- what is printed


def test_printed_numbers_are_those_of_the_paper() -> None:
    """Spot checks, typed in once more from the text: one or two of each block."""
    for table, data, network, activation, method, sparsity, value, sd in (
        ("tab1", "cifar10", "ResNet-32", "relu", "snip", 0.999, 9.98, 0.08),
        ("tab1", "cifar10", "ResNet-50", "relu", "sbp-sr", 0.995, 82.68, 0.52),
        ("tab1", "cifar10", "ResNet-104", "relu", "snip", 0.995, 33.63, 33.27),
        ("tab1", "cifar10", "ResNet-104", "relu", "sbp-sr", 0.999, 72.70, 0.48),
        ("tab2", "cifar10", "ResNet-32", "relu", "obd", 0.98, 93.49, None),
        ("tab2", "cifar10", "ResNet-32", "relu", "grasp-sr", 0.95, 91.16, 0.13),
        ("tab2", "cifar10", "ResNet-50", "relu", "random", 0.9, 85.11, 4.51),
        ("tab2", "cifar10", "ResNet-104", "relu", "synflow", 0.9, 93.43, 0.10),
        ("tab2", "cifar100", "ResNet-32", "relu", "magnitude", 0.98, 59.53, 2.19),
        ("tab2", "cifar100", "ResNet-50", "relu", "random", 0.98, 28.32, 10.35),
        ("tab2", "cifar100", "ResNet-104", "relu", "grasp", 0.95, 70.95, 1.12),
        ("tab3", "tiny-imagenet", "ResNet-32", "relu", "synflow", 0.95, 51.50, 0.21),
        ("tab3", "tiny-imagenet", "ResNet-50", "relu", "sbp-sr", 0.85, 59.8, 0.18),
        ("tab3", "tiny-imagenet", "ResNet-104", "relu", "snip", 0.95, 54.9, 0.42),
        ("tab5", "cifar10", "VGG16", "relu", "synflow", 0.85, 93.21, 0.13),
        ("tab5", "cifar10", "3xVGG16", "relu", "eoc-rescaling", 0.95, 93.40, 0.16),
        ("tab8", "imagenet", "ResNet-50", "relu", "snip", 0.95, 44.90, None),
        ("tab9", "cifar10", "ResNet-32", "tanh", "snip", 0.98, 85.47, 0.18),
        ("tab9", "cifar10", "ResNet-50", "relu", "snip", 0.999, 19.98, 14.12),
        ("tab9", "cifar10", "ResNet-50", "tanh", "sbp-sr", 0.995, 80.09, None),
    ):
        assert PUBLISHED[table][data, network, activation][method, sparsity] == Entry(value, sd)
    two = PUBLISHED["tab2"]["cifar10", "ResNet-32", "relu"]
    assert two["none", 0.0] == Entry(94.80, None) and str(two["none", 0.0]) == "94.80"
    assert ("none", 0.9) not in two and ("snip", 0.995) not in two
    assert ("digits", "ResNet-32", "relu") not in PUBLISHED["tab2"]
    assert not tables.printed("tab2", replace(BASE, network=Network("resnet", 32)))


def test_every_row_has_an_entry_for_each_column() -> None:
    counts = {name: sum(map(len, blocks.values())) for name, blocks in PUBLISHED.items()}
    # 3 networks x 2 x 5; (8 + 6 + 6) x 3 + 3 for each data set; 3 x 4 x 3; 2 x 3 x 3; 4 x 3; 4 x 2 x 4
    assert counts == {"tab1": 30, "tab2": 126, "tab3": 36, "tab5": 18, "tab8": 12, "tab9": 32, "tab10": 32}
    for blocks in PUBLISHED.values():
        for each in blocks.values():
            sparsities = {sparsity for _, sparsity in each if sparsity}
            for method in {method for method, _ in each}:
                row = {sparsity: entry for (one, sparsity), entry in each.items() if one == method}
                assert method in METHODS and row.keys() == ({0.0} if method == "none" else sparsities)
                assert all(0 < entry.value < 100 for entry in row.values())
    assert len(WINNERS) == 33


def test_table_1_is_part_of_table_2() -> None:
    for key, one in PUBLISHED["tab1"].items():
        two = PUBLISHED["tab2"][key]
        for place in itertools.product(("snip", "sbp-sr"), (0.9, 0.95, 0.98)):
            assert one[place] == two[place]


# ---- winners and ties


def test_a_winner_and_who_is_within_one_sd() -> None:
    assert winners({"a": (90.0, 0.1), "b": (89.0, 0.5)}) == ["a"]
    assert winners({"a": (90.0, 0.1), "b": (89.5, 0.5)}) == ["a", "b"]  # the larger sd counts
    assert winners({"b": (89.5, 0.1), "a": (90.0, 0.5)}) == ["a", "b"]  # whoever's it is
    assert winners({"a": (90.0, 0.5), "b": (89.7, 0.5), "c": (89.6, 0.5)}) == ["a", "b", "c"]
    assert winners({"a": (90.0, math.nan), "b": (89.99, math.nan)}) == ["a"]


@given(st.dictionaries(st.sampled_from(sorted(METHODS)), st.tuples(st.floats(0, 100), st.floats(0, 5)), min_size=1))
def test_laws_of_winners(accuracies) -> None:
    first, *tied = winners(accuracies)
    top = max(mean for mean, _ in accuracies.values())
    assert accuracies[first][0] == top and first not in tied
    for method, (mean, sd) in accuracies.items():
        close = top - mean <= max(sd, accuracies[first][1])
        assert (method in (first, *tied)) == close


def test_table_6_is_not_what_its_tables_give() -> None:
    setting = panel(BASE, ("snip", "sbp-sr"), (0.9,), 2)
    rows, claims, *_ = artifact_of("tab6").decided(setting, made_up(setting, lambda *_: (50.0, 1.0)))
    both = {(row["data"], row["network"], row["sparsity"]): row for row in rows if row["from"] == "as printed"}
    assert len(both) == 33
    row = both["cifar100", "ResNet-32", 0.98]
    assert (
        row["table_6"] == "SBP-SR" and row["best"] == "magnitude" and row["tied"] == "SBP-SR, SynFlow, GraSP-SR, GraSP"
    )
    # clear ones agree
    for key, best in ((("cifar10", "ResNet-104", 0.98), "SBP-SR"), (("cifar10", "ResNet-32", 0.98), "GraSP")):
        assert both[key]["table_6"] == both[key]["best"] == best and not both[key]["tied"]
    assert [claim.verdict for claim in claims[:2]] == ["fails", "fails"]
    wrong = [key for key, row in both.items() if row["table_6"] != (UNCLEAR if row["tied"] else row["best"])]
    assert claims[0].numbers["different"] == len(wrong) and f"{len(wrong)} of 33" in claims[0].evidence
    # said independently: SBP-SR at 90 % on CIFAR-100, ResNet-32, is 0.20 above SNIP, whose sd is 0.52
    assert ("cifar100", "ResNet-32", 0.9) in wrong and both["cifar100", "ResNet-32", 0.9]["tied"]


def test_measured_winners_leave_references_out() -> None:
    setting = panel(BASE, ("none", "obd", "snip", "sbp-sr"), (0.9,), 3)
    results = made_up(setting, lambda p, method, s: ({"none": 99, "obd": 98, "snip": 80, "sbp-sr": 90}[method], 0.1))
    rows, claims, *_ = artifact_of("tab6").decided(setting, results)
    assert rows[0]["from"] == "measured" and rows[0]["best"] == "SBP-SR" and rows[0]["tied"] == ""
    assert len(rows) == 1 + 33 and all(row.keys() == rows[0].keys() for row in rows)
    assert verdict(claims, "SBP-SR is the best") == "holds"


# ---- claims


def two_panels(methods=("snip", "sbp-sr"), sparsities=(0.98, 0.995), runs=4):
    return joined([panel(base, methods, sparsities, runs) for base in (BASE, DEEPER)])


def test_at_chance_or_not() -> None:
    setting = two_panels()

    def level(snip, stable):
        return lambda p, method, s: ((snip if method == "snip" else stable), 1.0) if s == 0.995 else (90, 1.0)

    as_in_the_paper = claims_of(setting, made_up(setting, level(10.0, 60.0)))
    assert verdict(as_in_the_paper, "SNIP is at chance") == verdict(as_in_the_paper, "SBP-SR is not") == "holds"
    both_learn = claims_of(setting, made_up(setting, level(60.0, 60.0)))
    assert verdict(both_learn, "SNIP is at chance") == "fails" and verdict(both_learn, "SBP-SR is not") == "holds"
    none_does = claims_of(setting, made_up(setting, level(10.0, 10.0)))
    assert verdict(none_does, "SBP-SR is not") == "fails"
    assert any("0 of 8 runs" in claim.text for claim in as_in_the_paper)
    assert any("8 of 8 runs" in claim.text for claim in both_learn)
    single = two_panels(runs=1)
    once = claims_of(single, made_up(single, level(10.0, 60.0)))
    assert verdict(once, "SNIP is at chance") == "undecided"


def test_ahead_behind_or_too_noisy() -> None:
    setting = two_panels(("snip", "grasp", "sbp-sr"))

    def claims(snip, sd, seed=0):
        def level(p, method, s):
            return ({"snip": snip, "grasp": 80.0, "sbp-sr": 80.0}[method], sd)

        return claims_of(setting, made_up(setting, level, seed=seed), "tab2")

    words = "ResNet-14 x0.25, digits, from 98 % on: SBP-SR is at least as accurate as SNIP"
    assert verdict(claims(60.0, 1.0), words) == "holds"
    assert verdict(claims(99.0, 0.5), words) == "fails"
    assert verdict(claims(80.5, 8.0), words) == "undecided"
    # equal methods: not called false; seed 0 gives no significant difference
    assert verdict(claims(60.0, 1.0), "at least as accurate as GraSP") != "fails"


def test_only_high_sparsities_and_the_deepest_network_are_asked_for() -> None:
    setting = two_panels(sparsities=(0.5, 0.98))

    def level(recipe, method, s):
        good = s == 0.98 and recipe.network.depth == 14
        return (80.0 if method == "sbp-sr" and good else 20.0 if good or method == "sbp-sr" else 90.0, 0.5)

    claims = claims_of(setting, made_up(setting, level))
    assert verdict(claims, "at least as accurate as SNIP") == "holds"
    assert verdict(claims, "SBP-SR over SNIP is larger for ResNet-14 than for ResNet-8 x0.25, digits") == "holds"


def test_references() -> None:
    setting = two_panels(("obd", "snip", "grasp", "grasp-sr", "sbp-sr"))
    means = {"obd": 95.0, "snip": 80.0, "grasp": 85.0, "grasp-sr": 84.0, "sbp-sr": 86.0}
    claims = claims_of(setting, made_up(setting, lambda p, m, s: (means[m], 0.2)), "tab2")
    assert verdict(claims, "ResNet-8 x0.25, digits: OBD") == "holds"
    assert verdict(claims, "ResNet-8 x0.25, digits: GraSP on the stable") == "holds"
    means.update(obd=70.0, grasp=80.0)
    claims = claims_of(setting, made_up(setting, lambda p, m, s: (means[m], 0.2)), "tab2")
    assert verdict(claims, "ResNet-8 x0.25, digits: OBD") == "fails"
    assert verdict(claims, "ResNet-8 x0.25, digits: GraSP on the stable") == "fails"


def test_the_print_against_itself() -> None:
    (nine,), (ten,) = ([decide(text) for text, decide in tables.said_of_itself(t).items()] for t in ("tab9", "tab10"))
    assert nine.verdict == "fails" and "4 of 8 entries differ" in nine.evidence
    assert "ResNet-32 SNIP 98 %: 87.78 and 87.63" in nine.evidence
    assert ten.verdict == "fails" and "32 accuracies" in ten.evidence
    assert tables.said_of_itself("tab1") == {}


# ---- cells, tables, pictures


def test_results_find_their_panels_and_cells() -> None:
    setting = joined([panel(BASE, ("snip",), (0.9, 0.98), 2), panel(DEEPER, ("sbp-sr", "snip"), (0.98,), 3)])
    trials = setting.trials()
    assert len(trials) == 2 * 2 + 3 + 3 and len({trial.key for trial in trials}) == len(trials)

    def level(p, method, s):
        return (100 * s - (50 if method == "snip" else 0), 0.0)

    first, second = tables.panels_of(setting.gather(made_up(setting, level)))
    assert first.accuracy("snip", 0.9).tolist() == pytest.approx([40.0] * 2)
    assert first.accuracy("snip", 0.98).tolist() == pytest.approx([48.0] * 2)
    assert second.accuracy("sbp-sr", 0.98).tolist() == pytest.approx([98.0] * 3)
    assert second.accuracy("snip", 0.98).tolist() == pytest.approx([48.0] * 3)


def test_rows_have_the_printed_values_beside_measured_ones() -> None:
    setting = artifact_of("tab2").setting("paper")
    rows = artifact_of("tab2").decided(setting, made_up(setting, lambda p, m, s: (50.0, 1.0)))[0]
    assert len(rows) == 126 and not any(math.isnan(row["printed"]) for row in rows)
    (one,) = [
        row
        for row in rows
        if (row["data"], row["network"], row["method"], row["sparsity"]) == ("cifar100", "ResNet-104", "SBP-SR", 0.98)
    ]
    assert (one["printed"], one["printed_sd"], one["runs"], one["epochs"]) == (67.73, 0.28, 3, 250)
    assert one["accuracy"] == pytest.approx(50, abs=4) and one["accuracy_sd"] > 0
    quick = artifact_of("tab2").setting("quick")
    rows = artifact_of("tab2").decided(quick, made_up(quick, lambda *_: (50, 1)))[0]
    assert all(math.isnan(row["printed"]) for row in rows)


def apart_of(name: str, preset: str) -> int:
    """Printed tables that stand by themselves, as what was measured is of other networks."""
    return 0 if preset == "paper" else len(PUBLISHED[name])


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "preset"),
    [
        *((name, "paper") for name in TABLES),
        *(pytest.param(name, "quick", marks=() if name in ("tab3", "tab6") else pytest.mark.slow) for name in TABLES),
    ],
)
def test_a_table_is_decided_and_drawn(name: str, preset: str) -> None:
    artifact = artifact_of(name)
    setting = artifact.setting(preset)
    results = made_up(setting, lambda p, m, s: (10.0 if m == "snip" and s > 0.99 else 80.0, 1.0))
    rows, claims, *_ = artifact.decided(setting, results)
    assert rows and all(row.keys() == rows[0].keys() for row in rows)
    assert claims and all(any(letter.isdigit() for letter in claim.evidence) for claim in claims)
    picture = whole_picture(artifact, setting, results, preset)
    grids = artifact.tables(artifact.read(setting, results))
    drawn = [{cell.get_text().get_text() for cell in axes.tables[0].get_celld().values()} for axes in picture.axes]
    assert len(grids) == len(drawn) == (2 if name == "tab6" else len(panels(setting)) + apart_of(name, preset))
    for grid, texts in zip(grids, drawn, strict=True):
        assert {*grid.rows, *grid.columns} <= texts and all(len(row) == len(grid.columns) for row in grid.rows.values())
    assert artifact.caption(setting) and str(setting["runs"]) in artifact.caption(setting)
    costs = artifact.costs(setting)
    assert sum(len(cost.trials) for cost in costs) >= len(artifact.trials(setting))


def test_tables_have_the_printed_values_beside_measured_ones() -> None:
    """For the network of the print in brackets, else as tables of their own; OBD and the whole network never win."""
    artifact = artifact_of("tab2")
    paper, quick = (artifact.setting(preset) for preset in ("paper", "quick"))
    level = lambda p, m, s: ({"none": 90.0, "obd": 80.0, "snip": 70.0}.get(m, 50.0), 0.0)  # noqa: E731
    first, *_ = artifact.tables(artifact.read(paper, made_up(paper, level)))
    assert first.columns == ("90 %", "95 %", "98 %")
    assert first.rows["SNIP"][0].endswith("(92.26 ± 0.32)") and first.rows["OBD"][2].endswith("(93.49)")
    assert first.rows[METHODS["none"].label][1:] == ["", ""]
    names = list(first.rows)
    apart = [METHODS[method].label for method in tables.REFERENCES]
    assert {names[row] for row, _ in first.best(apart)} == {"SNIP"}
    measured = artifact.tables(artifact.read(quick, made_up(quick, level)))
    assert [grid.title.startswith("as printed") for grid in measured] == [False] * 2 + [True] * 6
    assert not any("(" in cell for grid in measured for row in grid.rows.values() for cell in row)


def test_quick_runs_end_to_end_with_real_trials() -> None:
    setting = panel(BASE, ("none", "snip", "sbp-sr"), (0.9, 0.98), 2)
    results = [run(trial.spec, trial.seed) for trial in setting.trials()]
    rows, claims, draw, _ = artifact_of("tab1").decided(setting, results)
    assert [row["method"] for row in rows] == ["not pruned", *["SNIP"] * 2, *["SBP-SR"] * 2]
    assert not any(row["diverged"] for row in rows) and all(row["weights_on_paths"] > 0 for row in rows[1::2])
    assert verdict(claims, "SNIP is at chance") in VERDICTS
    assert draw().axes and "obd" not in str(verdicts(claims)).lower()
    assert artifact_of("tab6").decided(setting, results)[2]().axes


# ---- presets


def test_the_paper_presets_are_the_papers_protocol() -> None:
    depths = {name: [] for name in TABLES}
    for name in TABLES:
        for each in panels(artifact_of(name).setting("paper")):
            base = each.spec
            if base.network.kind == "vgg":  # Table 5, which test_hayou_vision.py knows
                depths[name].append(base.network.name)
                continue
            depths[name].append((base.data, base.network.depth))
            assert each.runs == 3 and base.batch_norm == "train" and base.learning_rate == 0.1
            assert base.drop_factor == 0.1 and base.momentum == 0.9 and base.augment
            epochs = {"cifar10": 160, "cifar100": 250, "tiny-imagenet": 300, "imagenet": 90}[base.data]
            assert base.epochs == epochs and base.drops == ((30, 60, 80) if epochs == 90 else (0.5, 0.75))
            assert base.network.width == (1.0 if base.data == "imagenet" else 2.0)  # doubled filters
            assert base.batch_size == (256 if base.data == "imagenet" else 128)
            assert any(tables.printed(table, base) for table in ((name,) if name != "tab6" else ("tab2", "tab3")))
    three = [32, 50, 104]
    assert depths["tab1"] == [("cifar10", d) for d in three]
    assert depths["tab2"] == [(data, d) for data in ("cifar10", "cifar100") for d in three]
    assert depths["tab3"] == [("tiny-imagenet", d) for d in three]
    assert depths["tab6"] == [*depths["tab2"], "VGG16", "3xVGG16", *depths["tab3"]]
    assert depths["tab8"] == [("imagenet", 50)]
    assert depths["tab9"] == depths["tab10"] == [("cifar10", d) for d in (32, 32, 50, 50)]


def test_every_printed_entry_has_its_runs_and_no_other() -> None:
    for name in ("tab1", "tab2", "tab3", "tab8", "tab9", "tab10"):
        setting = artifact_of(name).setting("paper")
        for each in panels(setting):
            assert set(each.axes["method sparsity"]) == set(tables.printed(name, each.spec))
        assert len(panels(setting)) == len(PUBLISHED[name])


def test_tables_share_their_trials() -> None:
    for preset in ("quick", "paper"):
        keys = {
            name: {trial.key for trial in artifact_of(name).trials(artifact_of(name).setting(preset))}
            for name in TABLES
        }
        assert keys["tab9"] == keys["tab10"]
        assert keys["tab2"] <= keys["tab6"]
        assert len(keys["tab1"] & keys["tab2"]) >= 32 if preset == "quick" else len(keys["tab1"] & keys["tab2"]) == 54
        assert len(keys["tab1"] & keys["tab9"]) == 40 if preset == "quick" else len(keys["tab1"] & keys["tab9"]) == 48


def test_costs_count_what_runs_train_on() -> None:
    costs = {cost.name: cost for cost in artifact_of("tab2").costs(artifact_of("tab2").setting("paper"))}
    one = costs["ResNet-32 x2, cifar10, relu, batches of 128"]
    assert (len(one.trials), one.images, one.evaluated) == (3 * (1 + 7 * 3), 160 * 50_000, 161 * 10_000)
    obd = costs["ResNet-32 x2, cifar10, relu, batches of 128, OBD"]
    assert (len(obd.trials), obd.images) == (9, 3 * 160 * 50_000)
    assert sum(len(cost.trials) for cost in costs.values()) == len(
        artifact_of("tab2").trials(artifact_of("tab2").setting("paper"))
    )
    (imagenet,) = artifact_of("tab8").costs(artifact_of("tab8").setting("paper"))
    assert sum(p.numel() for p in imagenet.model().parameters()) == 25_557_032 and imagenet.images == 90 * 1_281_167


def test_extents_are_those_of_the_sets() -> None:
    from epoch0.data import load

    first, last = load("digits"), load("digits", "test")
    told = (first.images.shape[1:], len(first.classes), len(first), len(last))
    assert EXTENTS["digits"] == told


def test_the_heading_says_what_stands_in() -> None:
    for name in TABLES:
        if name != "tab6":
            about = artifact_of(name).caption(artifact_of(name).setting("quick"))
            own = artifact_of(name).of_paper(artifact_of(name).setting("quick"))
            assert "digits" in about and "digits" not in own and re.search(r"\d epochs", about)
            assert re.search("cifar10|imagenet", own) and re.search(r"\d epochs", own)
    assert "OBD trains" in tables.about(artifact_of("tab2").setting("paper"))
