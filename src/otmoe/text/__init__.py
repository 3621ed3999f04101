"""JSON and files, errors and their sentences, checks of arguments, progress and HTML."""
