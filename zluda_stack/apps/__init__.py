"""Any CUDA program on ZLUDA: what was recorded of a run, what ZLUDA compiled for it."""
