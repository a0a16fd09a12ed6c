"""What a data worker holds of samples that several jobs take."""
