"""Plans for training steps, and running them.

    import automap, automap.jax
    plan = automap.plan(step, params, opt_state, batch, cluster="h100-4x8", batch_size=512)
    run = automap.jax.compile(plan)             # JAX 0.10

automap.plan asks automap-infer for a plan of a step, automap.jax runs it with JAX. automap.programs reads a folder of programs
(automap emit --to hlo), automap.execution runs one, automap.command is automap-run. `import automap` does not import JAX.
"""

from automap.errors import Error
from automap.planning import Plan, load, plan

__all__ = ["Error", "Plan", "load", "plan"]
