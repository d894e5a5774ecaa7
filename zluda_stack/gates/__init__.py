"""The gates that an image build must pass; see docs/gates.md for what each proves and what not.

They run inside build stages as `python3 -m zluda_stack.gates GATE ...`, on Python 3.10 with the
packages of requirements/gates.txt, so nothing here needs the rest of zluda_stack's dependencies.
"""
