"""What a training step would take, predicted without running it."""
