"""How a write meets what is there: patches, and server-side apply with its managed fields."""
