"""The batches of a session: made ahead of its steps, by whom there is."""
