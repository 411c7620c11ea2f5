"""Makes the built pages small: no idle whitespace, one copy of the parts that every page repeats, and of each icon."""

from __future__ import annotations

import json
import re
from collections.abc import Set
from pathlib import Path

PARTS = Path("assets", "javascripts", "parts.js")
STYLES = Path("assets", "stylesheets", "trainspec.css")
SITEMAP = Path("sitemap.xml")
KEPT = re.compile(r"<(?P<tag>pre|textarea|script|style)\b.*?</(?P=tag)>", re.DOTALL)
"""Elements that keep their whitespace."""
BLOCK = (
    "html|head|body|meta|link|title|header|footer|nav|main|article|section|aside|figure|figcaption|form|div|dialog|"
    "ul|ol|li|dl|dt|dd|p|h[1-6]|table|thead|tbody|tr|th|td|pre|details|summary|hr|blockquote"
)
AROUND_BLOCK = re.compile(rf" ?(?P<tag></?(?:{BLOCK})\b[^>]*>) ?")
SPACE = re.compile(r"\s+")
BLANK_TOKEN = re.compile(r'<span class="(?:w|p)">(?P<words>[^<]*)</span>|<span></span>')
"""Blanks, and punctuation, whose colour is nearly that of plain text."""
MENU_SPACE = re.compile(r' ?<span class="md-ellipsis">\s*(?P<words>[^<]*?)\s*</span> ?')
TOKEN_CLASSES = re.compile(r'<span class="(?P<first>[a-z][a-z0-9]{0,2}) [a-zA-Z][^"]*">')
"""Pygments adds finer classes, which the theme gives no colour of their own."""
CLASSES = re.compile(r'\bclass="(?P<names>[^"]*)"')
CLASS = re.compile(r"\.(-?[a-zA-Z_][\w-]*)")
RULE = re.compile(r"(?P<selectors>[^{}@;]+)\{(?P<body>[^{}]*)\}")
SELECTOR_END = re.compile(r",(?![^()]*\))")
BASE = re.compile(r'<link rel="stylesheet" href="(?P<base>[^"]*)assets/stylesheets/main\.')
ICON = re.compile(r'<svg xmlns="http://www\.w3\.org/2000/svg" viewBox="0 0 24 24"><path d="(?P<path>[^"]+)"/></svg>')
NEEDS_SCRIPTS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r'<form class="md-header__option" data-md-component="palette">.*?</form>',
        r"<script>var palette=.*?</script>",
        r'<label class="md-header__button md-icon" for="__search">.*?(?=</nav>\s*</header>)',
        r'<div data-md-color-scheme="default" data-md-component="outdated" hidden>.*?</script>\s*</aside>\s*</div>',
        r"<script>var target=document\.getElementById.*?</script>",
        r'<button type="button" class="md-top md-icon" data-md-component="top" hidden>.*?</button>',
        r'<div class="md-dialog" data-md-component="dialog">.*?</script>(?=\s*<script src)',
    )
)
"""Parts of a page that do nothing without scripts: the choice of colours, the search, the settings of the theme."""
SCOPE = re.compile(r"<script>__md_scope=new URL\([^)]*\),(?P<functions>__md_hash=.*?)</script>", re.DOTALL)
"""Settings that the theme keeps for a reader, and the pages they apply to: equal on all pages."""
HIDDEN_SIDEBAR = re.compile(
    r'<div class="md-sidebar md-sidebar--secondary"[^>]*\shidden\b[^>]*>.*?(?=<div class="md-content")', re.DOTALL
)
"""The contents of a page that asks for none: no width of a window shows them."""
IDLE = re.compile(
    r'<meta name="generator"[^>]*>|<footer class="md-footer"><div class="md-footer-meta md-typeset">'
    r'<div class="md-footer-meta__inner md-grid"><div class="md-copyright"></div></div></div></footer>'
    r'| title="(?P<label>[^"]*)"(?= class="[^"]*md-logo" aria-label="(?P=label)")'
)
"""The names of the makers of a page, a footer without words, and a title that repeats the label of a link."""
DESCRIPTION = re.compile(r'<meta name="description"[^>]*>')
IMPLIED_ENDS = tuple(
    re.compile(rf"</(?:{tags})>(?=<(?:{followers})\b)")
    for tags, followers in (
        ("p", "p|ul|ol|dl|table|div|h[1-6]|pre|hr|nav|figure|details|blockquote|/div|/article|/section|/li|/td|/dd"),
        ("td|th", "td|th|/tr"),
        ("tr", "tr|/tbody|/thead|/table"),
        ("thead", "tbody"),
        ("tbody", "tbody|/table"),
        ("dt|dd", "dt|dd|/dl"),
        ("li", "li|/ul|/ol"),
    )
)
"""End tags that HTML lets a page leave out before certain tags."""
BETWEEN_ELEMENTS = re.compile(r">\s+<")
DAY_OF_BUILD = re.compile(r"<lastmod>[^<]*</lastmod>")
"""The day on which the site was built, which the map of the site gives as that of the last change of each page."""
PART = r"<script>tsPart\((\d+)\)</script>"
PARTS_IN_A_ROW = re.compile(rf"{PART}(?:\s*{PART})+")
SCRIPTS_OF_PAGES = {"filter.js": "ts-filterable", "playground.js": "ts-playground", "neighbours.js": "ts-rule"}
"""Scripts that do something only on pages with an element of this name."""
WRITER = """\
// The only copy of the parts of a page that do nothing without scripts. Each page writes them where they belong.
var __md_scope=new URL("../../",document.currentScript.src),{functions};
const tsParts = {parts};
const tsBase = document.currentScript.getAttribute("src").slice(0, -"/{name}".length) || ".";
const tsPart = (...numbers) =>
  document.write(numbers.map((number) => tsParts[number].replaceAll("{{base}}", tsBase)).join(""));
"""
MASK = """\
.ts-icon-{number} {{
  background: currentcolor;
  forced-color-adjust: none;
  mask: url("data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E\
%3Cpath d='{path}'/%3E%3C/svg%3E") center / contain no-repeat;
}}
"""


def compact(site: Path) -> None:
    """Rewrite every page of a built version, and write the parts and icons that the pages share."""
    parts: dict[str, int] = {}
    icons: dict[str, int] = {}
    (functions,) = SCOPE.findall((site / "index.html").read_text(encoding="utf-8"))
    remove_unused_styles(site)
    for path in sorted(site.rglob("*.html")):
        text = smaller(without_idle_parts(path.read_text(encoding="utf-8")))
        if path.parent != site:
            text = DESCRIPTION.sub("", text)
        path.write_text(with_icons(with_parts(text, parts), icons), encoding="utf-8")
    shared = json.dumps(list(parts), ensure_ascii=False)
    (site / PARTS).write_text(WRITER.format(functions=functions, parts=shared, name=PARTS.as_posix()), encoding="utf-8")
    places = (site / SITEMAP).read_text(encoding="utf-8")
    (site / SITEMAP).write_text(DAY_OF_BUILD.sub("", BETWEEN_ELEMENTS.sub("><", places)), encoding="utf-8")
    styles = (site / STYLES).read_text(encoding="utf-8")
    masks = [MASK.format(number=number, path=path) for path, number in icons.items()]
    (site / STYLES).write_text("".join([styles, *masks]), encoding="utf-8")


def remove_unused_styles(site: Path) -> None:
    """Remove the rules of the theme for what no page has and no script makes, such as tabs, tags or posts of a blog."""
    pages = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    scripts = "".join(path.read_text(encoding="utf-8") for path in (site / "assets").rglob("*.js"))
    used = {name for found in CLASSES.finditer(pages) for name in found["names"].split()}
    for path in (site / "assets" / "stylesheets").glob("main.*.css"):
        text = path.read_text(encoding="utf-8")
        dead = {name for name in CLASS.findall(text) if name not in used and name not in scripts}
        path.write_text(without_classes(text, dead), encoding="utf-8")


def without_classes(styles: str, dead: Set[str]) -> str:
    """A style sheet without the selectors that need one of the classes.

    >>> without_classes("@media print{.a,.b{x:1}.a .b:is(.c,.d){x:2}}.b{x:3}", {"a"})
    '@media print{.b{x:1}}.b{x:3}'
    """

    def kept(rule: re.Match[str]) -> str:
        selectors = SELECTOR_END.split(rule["selectors"])
        left = [one for one in selectors if dead.isdisjoint(CLASS.findall(one))]
        return f"{','.join(left)}{{{rule['body']}}}" if left else ""

    return RULE.sub(kept, styles)


def smaller(text: str) -> str:
    r"""The same page without the whitespace and the marks of code that no reader sees.

    >>> smaller('<ul>\n  <li> a  <b>b</b> </li>\n</ul> <pre>x  y\n</pre>')
    '<ul><li>a <b>b</b></ul><pre>x  y\n</pre>'
    >>> smaller('<table><tbody><tr><td>1</td><td><p>2</p></td></tr></tbody></table><p>a</p> b')
    '<table><tbody><tr><td>1<td><p>2</table><p>a</p>b'
    """
    pieces, start = [], 0
    for kept in KEPT.finditer(text):
        pieces += [
            _without_space(text[start : kept.start()]),
            _plain_code(kept[0]) if kept["tag"] == "pre" else kept[0],
        ]
        start = kept.end()
    return "".join([*pieces, _without_space(text[start:])])


def without_idle_parts(text: str) -> str:
    """The same page without contents that it hides, what says nothing, and scripts that do nothing on it.

    >>> without_idle_parts('<table><script src="../filter.js"></script>')
    '<table>'
    """
    text = HIDDEN_SIDEBAR.sub("", text)
    for script, name in SCRIPTS_OF_PAGES.items():
        if not re.search(rf'\b(?:id|class)="{name}"', text):
            text = re.sub(rf'<script src="[^"]*\b{re.escape(script)}"></script>', "", text)
    return text


def _without_space(text: str) -> str:
    text = AROUND_BLOCK.sub(lambda found: found["tag"], SPACE.sub(" ", text))
    text = IDLE.sub("", MENU_SPACE.sub(r'<span class="md-ellipsis">\g<words></span>', text))
    for ends in IMPLIED_ENDS:
        text = ends.sub("", text)
    return text


def _plain_code(text: str) -> str:
    text = TOKEN_CLASSES.sub(r'<span class="\g<first>">', text)
    return BLANK_TOKEN.sub(lambda found: found["words"] or "", text)


def with_parts(text: str, parts: dict[str, int]) -> str:
    """A page that writes what needs scripts from the shared copy; `parts` has the number of each, and grows."""
    found = BASE.search(text)
    if found is None:
        return text
    start = found["base"]
    base = start.removesuffix("/") or "."

    def shared(part: re.Match[str]) -> str:
        words = part[0].replace(f'"../{base}"', '"../{base}"').replace(f'"{base}"', '"{base}"')
        words = words.replace(f'"{start}assets/', '"{base}/assets/')
        return f"<script>tsPart({parts.setdefault(words, len(parts))})</script>"

    for pattern in NEEDS_SCRIPTS:
        text = pattern.sub(shared, text, count=1)
    text = PARTS_IN_A_ROW.sub(lambda row: f"<script>tsPart({','.join(re.findall(PART, row[0]))})</script>", text)
    text = SCOPE.sub("", text)
    return text.replace("</head>", f'<script src="{start}{PARTS.as_posix()}"></script></head>', 1)


def with_icons(text: str, icons: dict[str, int]) -> str:
    """A page whose icons have their shape from the style sheet; `icons` has the number of each shape, and grows."""

    def named(icon: re.Match[str]) -> str:
        number = icons.setdefault(icon["path"], len(icons))
        return f'<svg class="ts-icon-{number}" viewBox="0 0 24 24"></svg>'

    return ICON.sub(named, text)
