"""Bad machines named before the training begins: who measures what with whom, and what it means."""
