"""Jobs with parameter servers as the simulator knows them: how they run, and what is best."""
