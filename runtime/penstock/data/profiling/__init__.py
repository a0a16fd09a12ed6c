"""What a program's time goes to, seen from inside it and without a change to it."""
