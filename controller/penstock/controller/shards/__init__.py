"""Which jobs this process looks after, where several divide them."""
