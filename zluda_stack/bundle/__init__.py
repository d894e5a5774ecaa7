"""One file with everything that a machine without network needs: written, read, put in place."""
