"""Models: where the weights of a model are. Serving them is the engines' matter."""
