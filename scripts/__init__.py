"""Tools of the checkout, which are no part of the package."""
