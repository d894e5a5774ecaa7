"""A matrix product with PyTorch on the CUDA device, compared with the CPU's. Exits 0 when equal.

An experiment: see docs/run.md. Nobody has shown that it works on ZLUDA.
"""

# ruff: noqa: T201 -- it is a program for people

import sys

import torch


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device: torch.cuda.is_available() is False", file=sys.stderr)
        return 4
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
    print(f"device: {torch.cuda.get_device_name(0)}")
    torch.manual_seed(7)
    # Sums of whole numbers below 2^24 are exact in single precision, in whatever order.
    left = torch.randint(-8, 9, (192, 144), dtype=torch.float32)
    right = torch.randint(-8, 9, (144, 80), dtype=torch.float32)
    product = (left.cuda() @ right.cuda()).cpu()
    wrong = int((product != left @ right).sum())
    print(f"{product.numel() - wrong} of {product.numel()} elements are right")
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
