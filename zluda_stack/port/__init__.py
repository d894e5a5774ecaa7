"""CUDA source code: what of it HIP and hipify cannot convert. Pure, but for `tree`."""
