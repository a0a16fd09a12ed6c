"""PyTorch's DataLoaders: their samplers, their epochs, and what they share with other programs."""
