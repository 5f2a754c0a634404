"""Documents ranked by a query, and choices among options, with their probabilities."""
