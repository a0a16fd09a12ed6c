"""What functions make of files, kept instead of the files: for functions that draw nothing."""
