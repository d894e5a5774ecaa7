"""Reading and writing settings: flags, environment variables and zluda-stack.yml files."""
