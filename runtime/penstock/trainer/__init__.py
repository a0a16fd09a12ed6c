"""Elastic Trainer, agent and the API of training scripts: what runs inside a job's own pods.

Training scripts import `penstock.trainer.elastic` (needs PyTorch) or `penstock.trainer.shards`.
The trainer itself is `penstock.trainer.service` round the pure `penstock.trainer.control`, the
agent is `penstock.trainer.agent`, and what they say to each other is `penstock.job.protocol`.
"""
