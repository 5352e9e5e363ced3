"""What the v2 API's methods do, a file per family; table.py is the table of them."""
