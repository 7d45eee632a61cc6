"""From a joint graph to a plan: the planner's problem, costs of kernels, the choice, plans known before."""
