"""Known data sets: what was read against published counts, in the layouts of the archives."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from fold_folders import letor_text, write_data_set, write_fold

from sinkprop.datasets import KNOWN_SETS, Counts, KnownSet, check_counts, known_set
from sinkprop.experiment import compare, find_data_sets, load_known

# What `write_data_set` writes with its defaults: four parts of six queries of twelve documents, four features
MINE = KnownSet("mine", Counts(24, 24 * 12), 4, n_folds=2)
SPLIT = KnownSet(
    "split",
    Counts(13, 13 * 12),
    4,
    {"train": Counts(8, 96), "vali": Counts(3, 36), "test": Counts(2, 24)},
    n_folds=1,
)


def published(folder, name="OHSUMED", n_queries=106, n_documents=16_140, n_features=45):
    """A fold with exactly these counts, whose features are almost all 0."""
    sizes = np.full(n_queries, n_documents // n_queries)
    sizes[: n_documents - sizes.sum()] += 1
    lines = [
        f"{i % 3} qid:{q} {1 + i % 3}:{i % 7} {n_features}:{(q + i) % 5}\n"
        for q, size in enumerate(sizes, 1)
        for i in range(size)
    ]
    ends = np.cumsum(sizes)[[n_queries // 2, 2 * n_queries // 3]]
    parts = [lines[: ends[0]], lines[ends[0] : ends[1]], lines[ends[1] :]]
    write_fold(folder / name / "Fold1", ["".join(part) for part in parts])
    return folder / name


class TestTable:
    def test_totals_are_the_sums_of_the_parts(self):
        for name, known in KNOWN_SETS.items():
            assert name == known.name
            assert known.n_folds == (1 if known.parts else 5)
            if known.parts:
                assert known.total.queries == sum(part.queries for part in known.parts.values())
                documents = [part.documents for part in known.parts.values()]
                assert None in documents or known.total.documents == sum(documents)

    def test_totals_that_are_published_next_to_the_parts(self):
        totals = {"yahoo-set1": 709_877, "yahoo-set2": 172_870, "istella-s": 3_408_630, "istella": 10_454_629}
        assert {name: KNOWN_SETS[name].total.documents for name in totals} == totals
        assert KNOWN_SETS["istella"].total.queries == KNOWN_SETS["istella-s"].total.queries == 33_018

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("MSLR-WEB10K", "mslr-web10k"),
            ("OHSUMED/QueryLevelNorm", "ohsumed"),
            ("istella-letor", "istella"),
            ("istella-s-letor", "istella-s"),
            ("ltrc_yahoo/set2", "yahoo-set2"),
            (" Yahoo-Set1 ", "yahoo-set1"),
            ("MQ2008-agg", "mq2008-agg"),
        ],
    )
    def test_names(self, text, name):
        assert known_set(text) is KNOWN_SETS[name]

    @pytest.mark.parametrize("text", ["mslr-web20k", "pydocs", "set3", "", "MQ2007-semi"])
    def test_unknown_names_are_explained(self, text):
        with pytest.raises(ValueError, match=r"no published counts for .* The data sets with counts are"):
            known_set(text)
        if text == "mslr-web20k":
            with pytest.raises(ValueError, match=r"Did you mean 'mslr-web"):
                known_set(text)


class TestFolds:
    def test_the_right_counts(self, tmp_path):
        folder = write_data_set(tmp_path / "any name")
        for fold in (1, 2):
            parts = load_known(MINE, folder, fold=fold)
            (found,) = find_data_sets(folder)
            same = found.folds[fold - 1].read()
            np.testing.assert_array_equal(parts.test.X, same.test.X)
            assert (parts.train.n_queries, parts.vali.n_queries, parts.test.n_queries) == (12, 6, 6)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"total": Counts(25, 288)}, "train, vali, test together have 24 queries instead of 25."),
            ({"total": Counts(24, 28_800)}, "together have 288 documents instead of 28,800."),
            ({"features": 46}, "there are 4 features instead of 46."),
            (
                {"total": Counts(1, 2), "features": 3},
                "have 24 queries instead of 1; train, vali, test together have 288 documents instead of 2; "
                "there are 4 features instead of 3.",
            ),
        ],
    )
    def test_other_counts_name_both_numbers(self, tmp_path, changes, message):
        folder, known = write_data_set(tmp_path / "x"), dataclasses.replace(MINE, **changes)
        with pytest.raises(ValueError, match=re.escape(message)) as raised:
            load_known(known, folder)
        assert f"Fold1 of {folder / 'Fold1'} is not mine as published" in str(raised.value)
        assert "needs check='warn'" in str(raised.value)
        with pytest.warns(UserWarning, match=re.escape(message)):
            warned = load_known(known, folder, check="warn")
        assert len(warned.train) == len(load_known(known, folder, check="none").train) == 144

    def test_documents_that_are_not_published_are_not_compared(self, tmp_path):
        load_known(dataclasses.replace(MINE, total=Counts(24)), write_data_set(tmp_path / "x"))

    def test_a_fold_that_is_not_there(self, tmp_path):
        folder = write_data_set(tmp_path / "x")
        known = dataclasses.replace(MINE, n_folds=5)
        with pytest.raises(FileNotFoundError, match=r"expected a folder Fold3 of mine; there is Fold1 and"):
            load_known(known, folder, fold=3)
        with pytest.raises(ValueError, match="fold must be from 1 to 5 for mine; got 6"):
            load_known(known, folder, fold=6)
        with pytest.raises(ValueError, match="fold must be at least 1; got 0"):
            load_known(known, folder, fold=0)
        (folder / "Fold2" / "vali.txt").unlink()
        with pytest.raises(FileNotFoundError, match=r"Fold2: vali.txt is missing"):
            load_known(known, folder, fold=2)
        with pytest.raises(FileNotFoundError, match="there is no such folder"):
            load_known("mq2007", tmp_path / "gone")

    def test_of_several_data_sets_the_one_of_the_name(self, tmp_path):
        write_data_set(tmp_path / "MQ2007")
        write_data_set(tmp_path / "MQ2008", size=5)
        with pytest.raises(ValueError, match=r"20 queries instead of 784"):
            load_known("mq2008", tmp_path)
        with pytest.raises(ValueError, match=r"expected the folder of ohsumed; there are MQ2007 and MQ2008"):
            load_known("ohsumed", tmp_path)

    def test_missing_values_of_the_aggregation_sets(self, tmp_path):
        texts = [letor_text(i, 2).replace(" 3:-", " 3:NULL #") for i in (1, 3, 5)]
        texts = [re.sub(r"NULL #\S+", "NULL", text) for text in texts]
        write_fold(tmp_path / "x" / "Fold1", texts)
        parts = load_known(KnownSet("agg", Counts(6, 72), 4), tmp_path / "x")
        assert 0 < np.isnan(parts.train.X[:, 2]).mean() < 1
        assert not np.isnan(parts.train.X[:, [0, 1, 3]]).any()

    @pytest.mark.parametrize("check", ["maybe", None, True])
    def test_a_check_that_is_not_known(self, tmp_path, check):
        folder = write_data_set(tmp_path / "x")
        with pytest.raises(ValueError, match="check must be 'error' or 'warn' or 'none'"):
            load_known(MINE, folder, check=check)
        with pytest.raises(ValueError, match="check must be 'error' or 'warn' or 'none'"):
            find_data_sets(folder, check=check)


class TestSplits:
    def texts(self, sizes=(8, 3, 2)):
        return [letor_text(100 * i, size) for i, size in enumerate(sizes, 1)]

    def test_istella(self, tmp_path):
        write_fold(tmp_path / "istella-s-letor" / "sample", self.texts())
        parts = load_known(SPLIT, tmp_path / "istella-s-letor")
        assert parts.vali.n_queries == 3
        with pytest.raises(ValueError, match=r"train has 8 queries instead of 19,245; train has 96"):
            load_known("istella-s", tmp_path)
        with pytest.raises(ValueError, match=r"fold must be from 1 to 1 for istella-s; got 2"):
            load_known("istella-s", tmp_path, fold=2)

    def test_without_validation_queries(self, tmp_path):
        train, _, test = self.texts()
        write_fold(tmp_path / "istella-letor" / "full", [train, test], names=("train", "test"))
        with pytest.raises(ValueError, match=r"there is no file with the 3 queries of vali"):
            load_known(SPLIT, tmp_path)
        parts = {name: SPLIT.parts[name] for name in ("train", "test")}
        assert load_known(dataclasses.replace(SPLIT, parts=parts), tmp_path).vali is None
        # only the total number of documents is published
        known = KnownSet("x", Counts(10, 121), 4, {"train": Counts(8), "test": Counts(2)}, n_folds=1)
        with pytest.raises(ValueError, match=r"published: train, test together have 120 documents instead"):
            load_known(known, tmp_path)

    def test_yahoo_leaves_out_zeros(self, tmp_path):
        for name, sizes in (("set1", (8, 3, 2)), ("set2", (4, 4, 4))):
            names = [f"{name}.{part}" for part in ("train", "valid", "test")]
            texts = [re.sub(r" 4:\S+", "", text) for text in self.texts(sizes)]
            write_fold(tmp_path / "ltrc_yahoo", texts, names=names)
        known = dataclasses.replace(SPLIT, sparse=True)
        found = {data.name: data for data in find_data_sets(tmp_path / "ltrc_yahoo")}
        parts = dataclasses.replace(found["ltrc_yahoo/set1"].folds[0], known=known).read()
        assert parts.train.X.shape == (96, 4)
        assert not parts.train.X[:, 3].any()
        for name, n in (("yahoo-set1", 8), ("yahoo-set2", 4)):
            queries = KNOWN_SETS[name].parts["train"].queries
            with pytest.raises(ValueError, match=rf"train has {n} queries instead of {queries:,}"):
                load_known(name, tmp_path)
            with pytest.warns(UserWarning, match="is not yahoo"):
                assert load_known(name, tmp_path, check="warn").train.n_features == 700

    def test_files_of_a_split_in_the_place_of_folds(self, tmp_path):
        write_fold(tmp_path / "x", self.texts())
        with pytest.raises(FileNotFoundError, match="expected a folder Fold1 of mq2007; there is all"):
            load_known("mq2007", tmp_path / "x")
        write_data_set(tmp_path / "y")
        with pytest.raises(FileNotFoundError, match=r"expected train.txt and test.txt of istella; there is"):
            load_known("istella", tmp_path / "y")


class TestComparisons:
    def test_of_a_set_with_the_published_counts(self, tmp_path):
        folder = published(tmp_path)
        (found,) = find_data_sets(folder, check="error")
        result = compare({found.name: found.folds}, "feature:1", metrics="ndcg@5", n_jobs=1)
        assert result.n_queries("OHSUMED") == len(np.unique(load_known("ohsumed", folder).test.qid))

    def test_of_a_part_of_a_set(self, tmp_path):
        folder = published(tmp_path, n_queries=105)
        (found,) = find_data_sets(folder, check="error")
        with pytest.raises(ValueError, match=r"105 queries instead of 106"):
            compare({found.name: found.folds}, "feature:1", metrics="ndcg@5", n_jobs=1)

    def test_of_a_set_without_counts(self, tmp_path):
        folder = write_data_set(tmp_path / "mine")
        with pytest.raises(ValueError, match=r"mine: there are no published counts for 'mine'"):
            find_data_sets(folder, check="error")
        assert find_data_sets(folder, check="warn") == find_data_sets(folder)
        (named,) = find_data_sets(folder, check="error", name="MQ2007")
        assert [fold.known for fold in named.folds] == [KNOWN_SETS["mq2007"]] * 2


def test_counts_of_queries_in_memory(tmp_path):
    parts = load_known(MINE, write_data_set(tmp_path / "x"))
    given = {"train": parts.train, "vali": parts.vali, "test": parts.test}
    check_counts(MINE, given, "here")
    with pytest.raises(ValueError, match=r"^here is not mine as published: train, test together have 18"):
        check_counts(MINE, {name: given[name] for name in ("train", "test")}, "here")
