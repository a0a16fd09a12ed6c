"""What a request does to an object: create, patch, delete."""
