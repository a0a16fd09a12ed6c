"""What is particular about the kinds that are built in, and about custom ones."""
