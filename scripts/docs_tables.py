"""What scripts that write tables into pages of docs/ share."""


def replace(text, script, name, rows):
    """The page with `rows` between the marks that `script` has there for its table `name`."""
    begin, end = f"<!-- {name}: scripts/{script}.py -->", f"<!-- end of {name} -->"
    first, last = text.index(begin) + len(begin), text.index(end)
    return text[:first] + "\n" + "\n".join(rows) + "\n" + text[last:]
