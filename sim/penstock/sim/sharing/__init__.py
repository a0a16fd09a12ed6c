"""Jobs that read the same data and share what is made of it: what that costs, by rule."""
