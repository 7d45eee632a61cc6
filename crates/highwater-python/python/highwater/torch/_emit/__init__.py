"""From a plan to two graphs, and from those to Python functions."""
