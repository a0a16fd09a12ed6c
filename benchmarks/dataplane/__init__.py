"""The systems that the data plane's benchmarks compare, each a process that is told what to do."""
