"""What is decided next: with a layout, on the way to another one, and without any."""
