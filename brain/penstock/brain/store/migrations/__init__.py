"""The history of the tables' shape; `upgrade` brings a database to the newest."""
