"""What the state consists of: records of servers, workers and what is under way, each by itself."""
