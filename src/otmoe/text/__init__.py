"""JSON and files, checks of arguments, progress and HTML: all that is about text."""
