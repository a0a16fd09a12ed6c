"""The Brain's memory: tables, migrations, and the repositories that hold every query."""
