"""Recipes, run with ``python -m examples.NAME``, and scripts, run with ``python examples/NAME.py``."""
