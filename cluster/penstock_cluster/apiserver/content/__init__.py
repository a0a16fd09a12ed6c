"""Bodies and answers: formats, columns, lists, logs."""
