"""A step as it is seen: tensors that tell of calls with them, and what is written down of those."""
