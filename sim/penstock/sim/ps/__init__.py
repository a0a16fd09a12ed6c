"""Training with parameter servers, simulated: what planning algorithms are tried on.

The models of jobs here are the truth of a simulation. They are deliberately richer than what the
algorithms assume: see ``docs/simulation-ps.md``.
"""
