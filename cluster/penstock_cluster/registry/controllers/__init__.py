"""What works on by itself: namespaces, garbage, budgets, quotas, definitions."""
