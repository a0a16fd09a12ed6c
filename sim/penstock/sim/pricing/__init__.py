"""Plans for many jobs with a price, beside plans of each job alone."""
