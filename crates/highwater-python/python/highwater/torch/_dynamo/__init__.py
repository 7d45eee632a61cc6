"""What Dynamo traces, and where it does what eager PyTorch does: branches, random numbers, sizes, graph breaks."""
