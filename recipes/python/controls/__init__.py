"""The recipes with their mistakes: the tests see that these go wrong, and so would see it in a recipe."""
