"""How batches travel: framed messages, the handshake before them, and arrays in shared memory."""
