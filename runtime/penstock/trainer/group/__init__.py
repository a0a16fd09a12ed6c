"""Training processes that share each step: who is in, what is reduced, when a step is done."""
