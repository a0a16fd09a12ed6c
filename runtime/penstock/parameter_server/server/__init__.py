"""One parameter server as a process; see `penstock.parameter_server`."""
