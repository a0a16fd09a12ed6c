"""When and how a job is planned again: administrators watch, the optimizer asks for a plan."""
