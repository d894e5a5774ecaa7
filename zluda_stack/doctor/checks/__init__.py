"""The checks of `doctor`, a module for each layer."""
