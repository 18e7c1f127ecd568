"""The catalogue finds what there is; reproducing writes all or nothing, runs nothing twice and needs no luck."""

import csv
import json
import math
import os
import pickle
import re
import sys
from pathlib import Path

import pytest

import epoch0 as e0
import toy_artifact
from epoch0.errors import InputError
from epoch0.experiments.experiment import canonical_json, resolve
from epoch0.experiments.store import Store, merge
from epoch0.papers import catalogue, reproduce

FIGURES = (
    "fig1",
    "fig2",
    "fig3a",
    "fig3b",
    "fig4a",
    "fig4b",
    "fig5a",
    "fig5b",
    "fig5c",
    "fig5d",
    "fig6a",
    "fig6b",
    "lemma1",
    "lemma10",
    "th2",
)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A toy artifact in the place of the real ones; its trials note themselves in tmp_path/log."""
    made = toy_artifact.artifact(tmp_path / "log")
    monkeypatch.setattr(reproduce, "find", lambda name: made)
    return made


def run_here(artifact, path, preset="quick"):
    """Put the results of an artifact's trials into a store without starting workers."""
    with Store(path) as store:
        for trial in artifact.trials(artifact.setting(preset)):
            store.put(trial, resolve(trial.function)(trial.spec, trial.seed))


def ran(tmp_path):
    log = tmp_path / "log"
    return log.read_text().split() if log.exists() else []


# ---- what there is


def test_every_figure_of_price_tanner_is_there_in_the_papers_order() -> None:
    assert [name for name in catalogue.catalogue() if name.startswith("price-tanner/")] == [
        f"price-tanner/{figure}" for figure in FIGURES
    ]


@pytest.mark.sample(71)
@pytest.mark.parametrize("name", list(catalogue.catalogue()))
def test_an_artifact_says_what_it_is_and_has_both_presets(name: str) -> None:
    artifact = catalogue.find(name)
    authors = ("Price & Tanner", "Raghu et al.", "Arpit & Bengio", "Hanin & Rolnick", "Hayou et al.")
    assert artifact.id == name and artifact.title and artifact.source.startswith(authors)
    assert set(artifact.presets) == {"quick", "paper"}
    assert artifact.setting("quick") != artifact.setting("paper")
    trials = artifact.trials(artifact.setting("quick"))
    assert len({trial.key for trial in trials}) == len(trials) > 0


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_every_setting_can_be_written_down(preset: str) -> None:
    """As a file of claims has it: labels of axes may be numbers or pairs."""
    for artifact in catalogue.catalogue().values():
        told = artifact.setting(preset).to_dict()
        assert json.loads(canonical_json(told))["function"].startswith("epoch0.papers."), artifact.id


def test_artifacts_pickle() -> None:
    for artifact in catalogue.catalogue().values():
        again = pickle.loads(pickle.dumps(artifact))
        keys, own = ([trial.key for trial in one.trials(one.setting("quick"))] for one in (again, artifact))
        assert keys == own, artifact.id


def test_the_gallery_has_the_titles_of_today() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gallery.md").read_text()
    shown = re.findall(r"(?m)^## (\S+?): (.*)$", page)
    assert shown == [(id, one.titled(one.presets["quick"])) for id, one in catalogue.catalogue().items()]


def test_expand() -> None:
    assert catalogue.expand("price-tanner/fig2") == ["price-tanner/fig2"]
    assert catalogue.expand("price-tanner") == [f"price-tanner/{figure}" for figure in FIGURES]
    assert set(catalogue.expand("price-tanner")) <= set(catalogue.expand("all")) == set(catalogue.catalogue())


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("price-tanner/figure3b", "price-tanner/fig3b"),
        ("pricetanner/fig3b", "price-tanner/fig3b"),
        ("price-taner", "price-tanner"),
    ],
)
def test_an_unknown_artifact_is_told_with_the_nearest(wrong: str, meant: str) -> None:
    for call in (catalogue.find, catalogue.expand, e0.reproduce):
        with pytest.raises(InputError, match=f"{wrong}.*Did you mean '{meant}"):
            call(wrong)


def test_unknown_names_and_presets_are_told_before_anything_is_written(tmp_path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match=r"quik.*Did you mean 'quick'"):
        e0.reproduce("price-tanner/fig2", preset="quik", out=out)
    with pytest.raises(InputError, match="no artifact 'price-tanner/fig9'"):
        reproduce.reproduce_all(["price-tanner/fig2", "price-tanner/fig9"], out=out)
    with pytest.raises(InputError, match="preset 'full'"):
        reproduce.reproduce_all(["price-tanner/fig2"], preset="full", out=out)
    assert not out.exists()


# ---- the run


@pytest.mark.usefixtures("in_this_process")
def test_a_run_writes_table_claims_and_picture_and_a_second_runs_nothing(toy, tmp_path) -> None:
    out = tmp_path / "out"
    done = e0.reproduce("toy/coin", out=out, workers=1)
    assert sorted(ran(tmp_path)) == [str(i) for i in range(6)]
    assert {path.name for path in (out / "toy").iterdir()} == {"coin.csv", "coin.json", "coin.md", "coin.png"}
    assert (out / "results.sqlite").is_file() and not [path for path in out.iterdir() if path.name.startswith(".")]
    assert done.claims[0].verdict == "holds"
    first = {path.name: path.read_bytes() for path in (out / "toy").iterdir()}
    again = e0.reproduce("toy/coin", out=out)
    assert len(ran(tmp_path)) == 6
    assert [claim.evidence for claim in again.claims] == [claim.evidence for claim in done.claims]
    assert {path.name: path.read_bytes() for path in (out / "toy").iterdir()} == first


@pytest.mark.usefixtures("in_this_process")
def test_what_is_missing_is_run_and_nothing_else(toy, tmp_path) -> None:
    setting = toy.setting("quick")
    with Store(tmp_path / "some.sqlite") as store:
        for trial in toy.trials(setting)[:4]:
            store.put(trial, toy_artifact.toss(trial.spec, trial.seed))
    e0.reproduce("toy/coin", store=tmp_path / "some.sqlite", workers=1)
    assert sorted(ran(tmp_path)) == [str(i) for i in range(6)]


@pytest.mark.usefixtures("in_this_process")
def test_parts_of_a_job_array_join_into_the_whole(toy, tmp_path) -> None:
    out = tmp_path / "out"
    for part in ("1/2", "2/2"):
        (told,) = reproduce.reproduce_all(["toy/coin"], out=out, shard=part, workers=1)
        assert isinstance(told, reproduce.Part) and told.trials == 3 and part in str(told)
        json.dumps(told.to_dict())
    assert not list(out.rglob("*.png"))
    merge([out / "results-1-of-2.sqlite", out / "results-2-of-2.sqlite"], into=out / "results.sqlite")
    (whole,) = reproduce.reproduce_all(["toy/coin"], out=out)
    assert len(ran(tmp_path)) == 6 and len(whole.data) == 7


def test_absent_data_is_told_before_anything_is_written(tmp_path, monkeypatch) -> None:
    made = toy_artifact.artifact(tmp_path / "log", data="mnist")
    monkeypatch.setattr(reproduce, "find", lambda name: made)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("EPOCH0_DATA", "before")
    out = tmp_path / "out"
    with pytest.raises(InputError, match=r"mnist was not found.*epoch0 data fetch mnist"):
        e0.reproduce("toy/coin", out=out, data_dir=tmp_path)
    assert not out.exists() and not ran(tmp_path)
    assert os.environ["EPOCH0_DATA"] == "before"


def test_the_data_folder_reaches_the_workers_and_is_forgotten_afterwards(toy, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("EPOCH0_DATA", raising=False)
    seen = []

    def run(trials, *others, **named):
        seen.append(os.environ["EPOCH0_DATA"])
        return [{"heads": 0.5 + trial.seed / 100} for trial in trials]

    monkeypatch.setattr(reproduce, "run", run)
    e0.reproduce("toy/coin", data_dir=tmp_path)
    assert seen == [str(tmp_path)] and "EPOCH0_DATA" not in os.environ


def test_progress_is_named_after_the_artifact(toy, tmp_path) -> None:
    import io

    from epoch0.experiments.run import Progress

    run_here(toy, tmp_path / "r.sqlite")
    stream = io.StringIO()
    e0.reproduce("toy/coin", store=tmp_path / "r.sqlite", progress=Progress(stream=stream))
    assert "toy/coin: 6 of 6 done" in stream.getvalue()


# ---- what comes out


@pytest.fixture
def done(toy, tmp_path):
    run_here(toy, tmp_path / "r.sqlite")
    return e0.reproduce("toy/coin", store=tmp_path / "r.sqlite")


def test_the_result_reads_as_text_rows_and_a_data_frame(done) -> None:
    text = str(done)
    assert "toy/coin (quick): A coin" in text and "holds              the coin is fair" in text
    assert text.endswith("1 holds, 0 holds on the whole, 0 fails, 0 undecided")
    frame = done.to_pandas()
    assert list(frame.columns) == ["trial", "heads", "remark"] and len(frame) == 7
    assert done.figure.axes[0].get_xlabel() == "trial"
    heading = done.figure._suptitle.get_text()
    assert "A coin" in heading and "toy/coin, quick: 6 coins" in heading


def test_files_say_the_same_as_the_result(done, tmp_path) -> None:
    paths = done.save(tmp_path / "saved")
    assert [path.name for path in paths] == ["coin.csv", "coin.json", "coin.md", "coin.png"]
    with open(paths[0]) as file:
        rows = list(csv.DictReader(file))
    assert [float(row["heads"]) for row in rows[:6]] == [row["heads"] for row in done.data[:6]]
    assert math.isnan(float(rows[6]["heads"])) and rows[0]["remark"] == ""
    told = json.loads(paths[1].read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert told["id"] == "toy/coin" and told["preset"] == "quick" and told["setting"]["spec"]["bias"] == 0.5
    assert told["claims"][0]["verdict"] == "holds" and told["claims"][0]["numbers"]
    page = paths[2].read_text()
    assert "# toy/coin: A coin" in page and "paper: the same" in page and "![A coin](coin.png)" in page
    assert "| holds | the coin is fair |" in page
    assert paths[3].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert done.to_dict()["data"][6]["heads"] is None
    assert os.stat(paths[0]).st_mode & 0o777 == 0o644


def test_saving_is_all_or_nothing(done, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "saved"
    before = {path: path.read_bytes() for path in done.save(folder)}

    def broken(*args, **kwargs):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(reproduce.os, "fsync", broken)
        with pytest.raises(InputError, match=r"coin\.csv.*cannot be written.*no space left"):
            done.save(folder)
        with pytest.raises(InputError):
            done.save(tmp_path / "fresh")
    with monkeypatch.context() as patch:
        patch.setattr(type(done.figure), "savefig", broken)
        with pytest.raises(OSError):
            done.save(tmp_path / "third")
    assert {path: path.read_bytes() for path in (folder / "toy").iterdir()} == before
    assert not [path for name in ("fresh", "third") for path in (tmp_path / name).rglob("*") if path.is_file()]


def test_a_folder_that_cannot_be_made_is_one_error(done, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        done.save(tmp_path / "file")


@pytest.mark.parametrize(("bias", "verdict"), [(0.5, "holds"), (0.9, "fails")])
def test_claims_are_decided_by_the_results(tmp_path, monkeypatch, bias: float, verdict: str) -> None:
    made = toy_artifact.artifact(tmp_path / "log", bias=bias)
    monkeypatch.setattr(reproduce, "find", lambda name: made)
    run_here(made, tmp_path / "r.sqlite")
    assert [claim.verdict for claim in e0.reproduce("toy/coin", store=tmp_path / "r.sqlite").claims] == [verdict]


@pytest.mark.parametrize("name", catalogue.catalogue())
def test_every_heading_says_what_was_measured(name: str) -> None:
    artifact = catalogue.find(name)
    for preset in ("quick", "paper"):
        about = artifact.caption(artifact.setting(preset))
        assert ("bars" in about) == (artifact.tables is None) and any(letter.isdigit() for letter in about)


@pytest.mark.usefixtures("in_this_process")
def test_a_gallery_shows_pictures_and_verdicts_of_two_quick_artifacts(tmp_path, monkeypatch) -> None:
    """In the papers' order; the copies for the documentation are small and linked."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    sys.modules.pop("gallery", None)
    import gallery

    for id in ("price-tanner/fig4b", "price-tanner/fig4a"):
        e0.reproduce(id, out=tmp_path, workers=1)
    page = gallery.gallery(tmp_path)
    assert page.index("![price-tanner/fig4a](price-tanner/fig4a.png)") < page.index("## price-tanner/fig4b")
    assert "paper: 100 unit vectors" in page and page.count("**") == 4 and "holds" in page
    (tmp_path / "docs").mkdir()
    gallery.make(tmp_path, tmp_path / "docs")
    for name in ("fig4a", "fig4b"):
        copy = tmp_path / "docs" / "gallery" / f"price-tanner-{name}.png"
        assert f"(gallery/{copy.name})" in (tmp_path / "docs" / "gallery.md").read_text()
        assert 0 < copy.stat().st_size < (tmp_path / "price-tanner" / f"{name}.png").stat().st_size / 2


# ---- whole presets

RECORDED = Path(catalogue.__file__).with_name("verdicts.txt").read_text("utf-8").splitlines()
QUICK = [line.split("\t") for line in RECORDED if "\tquick\t" in line]


@pytest.mark.slow
@pytest.mark.timeout(3600)  # hanin-rolnick/fig5 takes five minutes of one core
@pytest.mark.parametrize("id", dict.fromkeys(line[0] for line in QUICK))
def test_the_quick_preset_comes_out_as_it_is_recorded(id: str, tmp_path_factory) -> None:
    """To a word: what is trained rounds otherwise on another processor, and a claim at its edge moves with it."""
    recorded = {claim: word for name, _, word, claim in QUICK if name == id}
    out = tmp_path_factory.getbasetemp() / id.partition("/")[0]  # shared: figures of one paper run networks once
    done = e0.reproduce(id, out=out, workers=2)
    found = {claim.text: claim.verdict for claim in done.claims} | {c.text: f"check {c.verdict}" for c in done.checks}
    assert found.keys() == recorded.keys()
    words = ["fails", "undecided", "holds on the whole", "holds"]
    for text, word in found.items():
        near = [words.index(one) if one in words else one for one in (word, recorded[text])]
        # of a claim about one setting what is undecided is next to what holds; on two processors these two differed
        edge = {word, recorded[text]} == {"undecided", "holds"} and id in ("raghu/fig11", "raghu/fig18")
        assert near[0] == near[1] or edge or (word in words and abs(near[0] - near[1]) == 1), f"{text}: {word}"
