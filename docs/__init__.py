"""The documentation's site, and what is drawn for it by the code itself."""
