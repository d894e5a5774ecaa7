"""zluda-stack: run CUDA-only AI software on AMD GPUs, and serve your own card to coding clients."""

__version__ = "0.1.0"
