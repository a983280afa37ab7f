"""Views of a journal: records become rows, text, HTML and graphs. Pure, and of no front end."""
