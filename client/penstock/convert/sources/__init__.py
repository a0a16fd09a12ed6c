"""One module for each kind of manifest that is understood."""
