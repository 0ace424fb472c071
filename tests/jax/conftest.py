"""Settings of the tests of sinkprop.jax: double precision, unless a test asks for single precision."""

import importlib.util

if importlib.util.find_spec("jax") is not None:
    import jax

    jax.config.update("jax_enable_x64", True)
