"""The page of all statements has every number of the papers once."""

import re
import sys
from pathlib import Path

import pytest

from epoch0.experiments.claims import VERDICTS
from epoch0.papers import catalogue

ROOT = Path(__file__).parents[2]
# counted in the papers by hand: kind -> numbers
NUMBERED = {
    "price-tanner": {"Theorem": "1 2", "Corollary": "1 2 3", "Lemma": "1 2 3 4 5 6 7 8 9 10 11 12",
                     "Figure": "1 2 3a 3b 4a 4b 5a 5b 5c 5d 6a 6b"},
    "raghu": {"Theorem": "1 2 3 4 5 6", "Corollary": "1", "Lemma": "1 2 3 4 5",
              "Observation": "1",
              "Figure": "1 2 3 4 5 6 7 8 9 10 11 12 13a 13b 13c 13d 14a 14b 15 16 17 18"},
    "arpit-bengio": {"Lemma": "1 2 3 4 5 6 7", "Theorem": "1 2 3", "Proposition": "1", "Figure": "1a 1b 2a 2b 3"},
    "hanin-rolnick": {"Theorem": "1 2 3 6", "Corollary": "4 5 7 8", "Proposition": "9 10 11", "Lemma": "12",
                      "Figure": "1 2 3 4 5 6a 6b 6c 7 8"},
    "hayou": {"Theorem": "1 2 3 4", "Proposition": "1 2 3 4", "Appendix Lemma": "1 2 3 4", "Algorithm": "1",
              "Figure": "1a 1b 2 3a 3b 3c 4 5a 5b 5c 5d 5e 5f", "Table": "1 2 3 4 5 6 7 8 9 10"},
}  # fmt: skip


def test_every_number_of_the_papers_is_there_once() -> None:
    found = [(one.paper, one.name) for one in catalogue.statements()]
    wanted = {
        (paper, f"{kind} {n}") for paper, kinds in NUMBERED.items() for kind, ns in kinds.items() for n in ns.split()
    }
    assert set(found) == wanted and len(found) == len(wanted)


def test_every_artifact_is_run_by_a_row_and_every_row_runs() -> None:
    rows = catalogue.statements()
    assert {id for one in rows for id, _ in one.runs} == set(catalogue.catalogue())
    assert all(one.said and one.runs for one in rows)


def test_an_id_of_its_own_counts_all_claims_or_those_that_the_row_names() -> None:
    runs = {(one.paper, one.name): one.runs for one in catalogue.statements()}
    assert runs["price-tanner", "Lemma 1"] == (("price-tanner/lemma1", ""),)
    assert runs["raghu", "Lemma 1"] == (("raghu/lemma1", "Lemma 1,"),)
    assert runs["price-tanner", "Lemma 3"] == (("price-tanner/lemma1", "Lemmas 1 to 6"),)


def test_what_selects_claims_finds_some() -> None:
    """A text that no quick claim contains would hide a verdict."""
    lines = [line.split("\t") for line in (Path(catalogue.__file__).parent / "verdicts.txt").read_text().splitlines()]
    for one in catalogue.statements():
        for id, text in one.runs:
            claims = [claim for name, preset, _, claim in lines if name == id and preset == "quick"]
            assert not text or any(text in claim for claim in claims), (one.paper, one.name, id, text)


def test_verdicts_are_words_of_the_rules_and_of_artifacts_that_are_there() -> None:
    words = {*VERDICTS, *(f"check {word}" for word in VERDICTS)}
    for line in (Path(catalogue.__file__).parent / "verdicts.txt").read_text().splitlines():
        id, preset, word, claim = line.split("\t")
        assert id in catalogue.catalogue() and preset in ("quick", "paper")
        assert word in words and claim, line


def test_verdicts_are_counted_and_selected() -> None:
    assert catalogue._verdict([("hayou/tab6", "")], "quick") == "2 fails, 1 undecided"
    assert catalogue._verdict([("raghu/fig13c", "bound of Theorem 3")], "quick") == "1 holds"
    both = catalogue._verdict([("raghu/fig13c", "bound of Theorem 3"), ("raghu/fig6", "nothing has this")], "quick")
    assert both == "fig13c: 1 holds; fig6: not run"


def test_the_page_in_the_docs_has_the_statements_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    sys.modules.pop("verdicts", None)
    import verdicts

    assert (ROOT / "docs" / "statements.md").read_text() == verdicts.page()


def test_new_verdicts_replace_those_of_their_id_and_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    sys.modules.pop("verdicts", None)
    import verdicts

    told = {"id": "a/fig1", "preset": "quick", "claims": [{"verdict": "fails", "text": "x"}], "checks": []}
    before = [
        "a/fig1\tquick\tholds\tx",
        "a/fig1\tquick\tholds\ty",
        "a/fig1\tpaper\tholds\tx",
        "a/fig2\tquick\tholds\tz",
    ]
    assert verdicts.taken(before, told) == ["a/fig1\tquick\tfails\tx", *before[2:]]
    assert verdicts.taken(before[3:], told) == [before[3], "a/fig1\tquick\tfails\tx"]


@pytest.mark.sample(39)
@pytest.mark.parametrize("name", list(catalogue.catalogue()))
def test_headings_say_what_ran_and_what_the_paper_has(name: str) -> None:
    """The values of every axis that differs between the presets are in the caption, and so is the data set."""
    artifact = catalogue.find(name)
    quick, paper = artifact.setting("quick"), artifact.setting("paper")
    assert artifact.of_paper(paper) == "the same"
    assert artifact.of_paper(quick) != "the same" or artifact.caption(quick) == artifact.caption(paper)
    for setting in (quick, paper):
        told = artifact.caption(setting)
        assert setting.data is None or setting.data in told.lower()
        assert not re.search("tangents|so many|biased|_", told.replace("sigma_", "")), "in words of the paper"
        assert not re.search(r"VGG16|ImageNet", artifact.titled(quick) + artifact.caption(quick))
