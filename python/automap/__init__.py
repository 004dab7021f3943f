"""Programs of a pipeline plan (automap emit --to hlo), and running them.

automap.programs reads a folder of them, and needs nothing else; automap.execution runs it with JAX.
"""
