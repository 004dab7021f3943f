"""Links of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/ lead somewhere, files that they name are there, and every page of docs/ stands
once in the site's navigation. scripts/docs_site.sh asks mkdocs for more, and needs its packages; this needs none."""

import posixpath
import re
import unittest

from programs import SOURCE

DOCS = SOURCE / "docs"
FENCE = re.compile(r"(?ms)^ *(```|~~~).*?^ *\1 *$")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
# What stands in backquotes and looks like a page of ours, from the root.
NAMED = re.compile(r"`(docs/[\w./-]+|README\.md|CONTRIBUTING\.md|CHANGELOG\.md|scripts/[\w./-]+\.(?:py|sh|txt))(?:#([\w-]+))?[^`]*`")


def without_code(text, spans=True):
    text = FENCE.sub("", text)
    return re.sub(r"`[^`]*`", "", text) if spans else text


def slug(heading):
    """The anchor that GitHub and mkdocs give a heading."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


def anchors(text):
    found, count = set(), {}
    for heading in re.findall(r"(?m)^#{1,6} +(.*?) *#*$", without_code(text, spans=False)):
        name = slug(heading)
        found.add(name if name not in count else f"{name}-{count[name]}")
        count[name] = count.get(name, 0) + 1
    return found


def targets(text):
    return [link for link in LINK.findall(without_code(text)) if not re.match(r"[a-z]+:", link)]


def wrong_links(where, text, texts):
    """The links of a page that lead nowhere; `texts`: what there is, by path from the root, None for what is no page."""
    wrong = []
    for link in targets(text):
        path, _, anchor = link.partition("#")
        page = posixpath.normpath(posixpath.join(posixpath.dirname(where), path)) if path else where
        if page not in texts or anchor and (texts[page] is None or anchor not in anchors(texts[page])):
            wrong.append(link)
    return wrong


def pages_of_navigation(text):
    return re.findall(r"(?m)^ +- (?:.*: )?(\S+\.md)$", text[text.index("\nnav:\n"):])


class Docs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        paths = [SOURCE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(p for p in DOCS.rglob("*") if p.is_file())
        cls.texts = {str(path.relative_to(SOURCE)): path.read_text() if path.suffix == ".md" else None for path in paths}
        cls.pages = {where: text for where, text in cls.texts.items() if text is not None}

    def test_the_check_finds_what_is_wrong(self):
        page = "# A `b`: c/d\n[x](#a-b-cd) [y](other.md#no) [z](none.md)\n`[n](no.md)`\n```\n[n](no.md)\n# no\n```\n## B\n## B\n[w](https://a.b)"
        self.assertEqual(anchors(page), {"a-b-cd", "b", "b-1"})
        self.assertEqual(wrong_links("docs/p.md", page, {"docs/p.md": page, "docs/other.md": "# Yes"}), ["other.md#no", "none.md"])
        self.assertEqual(pages_of_navigation("docs:\n  - no.md\nnav:\n  - A:\n      - i.md\n      - B, c: d/e.md\n"), ["i.md", "d/e.md"])

    def test_links_lead_somewhere(self):
        count = 0
        for where, text in self.pages.items():
            with self.subTest(page=where):
                self.assertEqual(wrong_links(where, text, self.texts), [])
                count += len(targets(text))
        self.assertGreater(count, 100)

    def test_files_that_are_named_are_there(self):
        for where, text in self.pages.items():
            # What was, was.
            if where == "CHANGELOG.md":
                continue
            for path, anchor in NAMED.findall(without_code(text, spans=False)):
                with self.subTest(page=where, path=path):
                    self.assertTrue((SOURCE / path).exists(), f"{where} names {path}, which is not there")
                    if anchor:
                        self.assertIn(anchor, anchors((SOURCE / path).read_text()))

    def test_every_page_stands_once_in_the_navigation(self):
        listed = pages_of_navigation((SOURCE / "mkdocs.yml").read_text())
        self.assertEqual(sorted(listed), sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")))


if __name__ == "__main__":
    unittest.main()
