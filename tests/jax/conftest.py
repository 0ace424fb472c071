"""Settings of the tests of sinkprop.jax: double precision, unless a test asks for single precision."""

import importlib.util
import os

# Most of the time of these tests is XLA's compiling. Without optimization, and without MLIR's loops for fused
# operations, the programs compute the same.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false",
)

if importlib.util.find_spec("jax") is not None:
    import jax

    jax.config.update("jax_enable_x64", True)
