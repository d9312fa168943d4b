"""Build the documentation site and its generated figures."""
