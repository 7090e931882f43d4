"""Families of names: one spelling in both worlds, clusters that only earlier names decide."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from predictors.families import MOST_LEADERS, SIMILAR, Foundings, NameClusters, cluster_names, family_of, job_family
from predictors.history import history_features, known_jobs
from tests.predictors.history_cases import at
from tests.replay_cases import hypothesis_settings


def similarity(a: str, b: str) -> float:
    """1 less the Levenshtein distance as a share of the longer name, by the textbook's table."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    longest = max(len(a), len(b))
    return 1.0 if not longest else 1 - row[-1] / longest


names = st.lists(st.tuples(st.none() | st.sampled_from("ab"), st.none() | st.text("abc", max_size=7)), max_size=20)


@hypothesis_settings(60)
@given(pairs=names)
def test_clusters_are_those_of_a_plain_leader_clustering(pairs):
    leaders: dict[str, list[str]] = {}
    expected = []
    for user, family in pairs:
        if user is None or family is None:
            expected.append(None)
            continue
        mine = leaders.setdefault(user, [])
        best = max(mine, key=lambda leader: similarity(family, leader), default=None)  # the first of equals
        if best is None or similarity(family, best) < SIMILAR - 1e-12:
            best = family
            mine.append(family)
        expected.append(best)
    # A family that came before stays where it was, though a nearer cluster was founded since.
    first: dict[tuple, str | None] = {}
    expected = [first.setdefault(pair, leader) for pair, leader in zip(pairs, expected, strict=True)]
    users, families = (pl.Series([pair[i] for pair in pairs], dtype=pl.String) for i in (0, 1))
    assert cluster_names(users, families).to_list() == expected
    for cut in range(len(pairs)):  # later names change nothing
        assert cluster_names(users.head(cut), families.head(cut)).to_list() == expected[:cut]


@hypothesis_settings(100)
@given(name=st.none() | st.text(max_size=12) | st.text("aBf09-_É", max_size=24))
def test_one_name_is_spelled_as_a_column_of_names(name):
    assert family_of(name) == pl.select(job_family(pl.lit(name, dtype=pl.String))).item()


def test_a_full_user_founds_no_more_clusters():
    clusters = NameClusters()
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    for i in range(MOST_LEADERS):
        name = alphabet[i % 26] * 5 + alphabet[i // 26] * 5
        assert clusters.add("ann", name) == name
    assert clusters.add("ann", "0" * 10) == "aaaaaaaaaa"  # nothing is similar: the first of the nearest
    assert len(clusters.leaders["ann"]) == MOST_LEADERS
    again = NameClusters.of_rows(clusters.rows())
    assert (again.leaders, again.rows()) == (clusters.leaders, clusters.rows())


def test_similar_names_share_their_history():
    log = pl.DataFrame(
        {
            "submit_time": [at(0), at(100), at(200), at(300)],
            "user": ["ann", "ann", "ann", "bob"],
            "job_name": ["bert_base_v1", "bert_bass_v2", "resnet", "bert_base_v1"],
            "duration_s": [7.0, 8.0, 9.0, 1.0],
        }
    )
    stats = {"keys": ["user_similar", "user_name", "user_family"], "stats": ["last"]}
    assert history_features(log, past=known_jobs(log), **stats).rows() == [
        (None, None, None),
        (7.0, None, None),
        (None, None, None),
        (None, None, None),
    ]
    new = pl.DataFrame({"submit_time": [at(50), at(250)], "user": ["ann"] * 2, "job_name": ["bert_basf_v9"] * 2})
    assert history_features(new, past=known_jobs(log), **stats)["user_similar__last"].to_list() == [7.0, 8.0]


def test_a_stranger_finds_only_clusters_that_were_there():
    log = pl.DataFrame({"submit_time": [at(0), at(100)], "user": ["u", "u"], "job_name": ["ssssssssss", "tttttttttt"]})
    foundings = Foundings(known_jobs(log))
    assert foundings.find("u", "tttttttttw", 1) is None
    assert foundings.find("u", "tttttttttw", 2) == "tttttttttt"
    assert foundings.find("u", "tttttttttt", 1) is None
    assert foundings.find("u", "tttttttttt", 2) == "tttttttttt"
    assert foundings.find(None, "tttttttttt", 2) is None
