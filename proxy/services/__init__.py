"""What the v2 API's methods do, a file per family; methods.py is the table of them."""
