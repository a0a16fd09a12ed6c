"""Between what is stored and what is on the wire: pure conversions, one module for each noun."""
