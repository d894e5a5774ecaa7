"""Which layer fails on a host, why, and what to do about it: pure, but for `stack` and `fixes`."""
