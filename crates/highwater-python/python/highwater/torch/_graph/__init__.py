"""A joint graph of AOTAutograd's as the planner sees it."""
