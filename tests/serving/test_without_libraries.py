"""A service in a process in which no library but NumPy can be imported, and the cost of its import."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
from export_rankers import real_queries

SERVICE = """
import importlib.abc, sys

class Block(importlib.abc.MetaPathFinder):
    names = set("scipy sklearn pandas polars pyarrow lightgbm xgboost catboost torch safetensors joblib "
                "threadpoolctl onnx dask click rich matplotlib".split())
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
import json, warnings
import numpy as np
from sinkprop.serving import load

folder, names = sys.argv[1], json.loads(sys.argv[2])
warnings.simplefilter("ignore")
data = np.load(folder + "/queries.npz")
X, qid = data["X"], data["qid"]
one, found = X[qid == qid[0]], {}
for name, path in names.items():
    scorer = load(path)
    found[name + "/predict"] = scorer.predict(X, qid=qid)
    found[name + "/rank"] = scorer.rank(X, qid=qid)
    found[name + "/distribution"] = scorer.rank_distribution(one)
    found[name + "/plain"] = scorer.rank_distribution(one, calibrated=False)
    for method in ("predict_proba", "confidence", "expected_rank"):
        found[name + "/" + method] = getattr(scorer, method)(X, qid=qid)
    found[name + "/top"] = scorer.top_k_probability(X, 3, qid=qid, calibrated=False)
    for method in ("best_set", "shortest_list", "rank_interval"):
        found[name + "/" + method] = getattr(scorer, method)(X, qid=qid, coverage=0.5)
    found[name + "/answers"] = scorer.answers(X, qid=qid, precision=0.5, confidence=0.5)
np.savez(folder + "/found.npz", **found)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules} & Block.names)))
"""
NAMES = [
    "sinkprop", "sinkprop, query", "regression", "smoothrank", "softrank", "boltzrank, pairs", "feature",
    "logit-logistic", "probit", "beta", "boosted", "lightgbm", "xgboost", "catboost", "auto",
    "auto with networks", "network, log", "network, gelu, layer", "networks", "attention",
    "attention, two blocks, beta",
]  # fmt: skip


def test_a_service_needs_numpy_alone(loaded, tmp_path):
    queries = real_queries()
    X, qid = queries.X[:300], queries.qid[:300]
    np.savez(tmp_path / "queries.npz", X=X, qid=qid.astype(str))
    paths = {}
    for number, name in enumerate(NAMES):
        paths[name] = str(tmp_path / f"{number}.model")
        loaded(name)[0].save(paths[name])
    run = subprocess.run(
        [sys.executable, "-c", SERVICE, str(tmp_path), json.dumps(paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert json.loads(run.stdout) == []
    found = np.load(tmp_path / "found.npz")
    for name in NAMES:
        _, scorer = loaded(name)
        assert found[f"{name}/predict"].tobytes() == scorer.predict(X, qid=qid).tobytes(), name
        assert found[f"{name}/rank"].tobytes() == scorer.rank(X, qid=qid).tobytes(), name
        expected = scorer.predict_proba(X, qid=qid)
        assert found[f"{name}/predict_proba"].tobytes() == expected.tobytes(), name


def test_the_import_loads_few_modules():
    program = "import sinkprop.serving, sys; print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    own = {name for name in run.stdout.split() if name.startswith("sinkprop.")}
    assert len(own) < 30
    assert not own & {"sinkprop.estimator", "sinkprop.calibration", "sinkprop.metrics.evaluation"}
