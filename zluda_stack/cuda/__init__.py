"""What is inside a CUDA program: its ELF file, the fat binaries in it, and their PTX."""
