"""How results are shown: tables in the terminal, and pictures where asked for."""
