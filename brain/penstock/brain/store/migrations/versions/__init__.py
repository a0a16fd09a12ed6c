"""One module for each change, in the order of their `down_revision`."""
