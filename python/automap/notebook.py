"""HTML that a notebook shows. All text is escaped here."""

from html import escape


def table(heads, rows):
    """Texts and numbers as a small table, numbers to the right."""
    head = "".join(f"<th style=\"text-align:left\">{escape(one)}</th>" for one in heads)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if heads else ''}<tbody>{lines}</tbody></table>"


def _cell(value):
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return f"<td style=\"text-align:{'right' if number else 'left'}\">{escape(text)}</td>"


def sentence(text):
    return f"<p>{escape(text)}</p>"


def sentences(texts):
    return "".join(sentence(text) for text in texts)


def picture(svg):
    """An SVG file inside a page: without what stands in front of its root, and no wider than the page."""
    return "<div>" + svg[svg.index("<svg"):].replace("<svg ", "<svg style=\"max-width:100%;height:auto\" ", 1) + "</div>"
