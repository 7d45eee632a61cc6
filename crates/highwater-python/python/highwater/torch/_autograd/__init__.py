"""From Dynamo's graph to AOTAutograd's joint graph, with the bits and the layouts of eager PyTorch."""
