#!/usr/bin/env python3
"""A fake rocprofv3: it takes the options of the real one, and becomes the program as that does."""

from __future__ import annotations

import argparse
import os

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--kernel-trace", action="store_true", required=True)
parser.add_argument("--stats", action="store_true", required=True)
parser.add_argument("--output-format", choices=["csv"], required=True)
parser.add_argument("--output-directory", required=True)
parser.add_argument("--output-file", required=True)
parser.add_argument("program", nargs="+")
given = parser.parse_args()

if os.environ["ROCPROF_SIGNAL_HANDLERS"] == "0":
    os.environ["FAKE_ROCPROF"] = given.output_directory
os.execv(given.program[0], given.program)  # noqa: S606 -- the program that it was given
