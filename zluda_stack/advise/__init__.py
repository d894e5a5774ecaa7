"""Which way to take with a CUDA program, its sources, a Python project or a model: `advise`."""
