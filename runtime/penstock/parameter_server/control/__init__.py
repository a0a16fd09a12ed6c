"""The trainer's side: decisions without I/O; see `penstock.parameter_server`."""
