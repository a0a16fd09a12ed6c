"""The parameters that a server holds, how they come to it and how they are copied and kept."""
