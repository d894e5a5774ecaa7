"""Will a CUDA program run on ZLUDA: what its files hold, and what that means."""
