"""Plans for training steps, and running them.

    import automap, automap.jax
    plan = automap.plan(step, params, opt_state, batch, cluster="h100-4x8", batch_size=512)
    run = automap.jax.compile(plan)             # JAX 0.10

automap.plan asks automap-infer for a plan of a step, automap.evaluate for what a layout or another plan takes; automap.compare
asks automap-compare for the plans of published systems, automap.profile automap-profile for what every position costs;
automap.datasets.open gives the rows of a dataset as numpy arrays (h5py). automap.jax runs a plan with JAX. automap.programs
reads a folder of programs (automap emit --to hlo), automap.execution runs one, automap.command is automap-run. automap.torch
plans and exports steps of PyTorch (torchax), automap.stablehlo makes HLO of StableHLO.
`import automap` does not import JAX, numpy or h5py. Times are in ms, sizes in bytes.
"""

from automap import datasets
from automap.comparing import Comparison, System, compare
from automap.errors import Error
from automap.planning import Plan, evaluate, load, plan
from automap.profiling import Profile, profile

__all__ = ["Comparison", "Error", "Plan", "Profile", "System", "compare", "datasets", "evaluate", "load", "plan", "profile"]
