"""What `benchmarks.sharing` is made of: groups of programs, their scenarios, and a peer."""
