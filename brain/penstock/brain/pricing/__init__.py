"""What many jobs get together, where resources have a price: pure, standard library and numpy."""
