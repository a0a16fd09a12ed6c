"""The training process's side of parameter servers; see `penstock.parameter_server`."""
