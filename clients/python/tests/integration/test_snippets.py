"""Runs the curl and Python snippets of the documentation as they are printed.

A `console` block after the comment `<!-- run -->` is run: its lines that begin with `$ `, in one shell for the page, in a folder of its own with
a store of its own. What the block shows as their output must be what they print; ids, tokens and times differ, and later commands get the ids
that were printed. A `python` block that begins with a comment
like `# worker.py` is a file in that folder. Only the address of the server is another one: any free port.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List

import windlass
from tests.integration.server import ROOT, ServerCase, binary
from windlass import Client, NewJob

RUN = "<!-- run -->"
#: A block with such commands is run, or says why not.
MUST_RUN = re.compile(r"^\$ .*\b(curl|python|pip)\b", re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
#: Ids of jobs and workers, which differ from run to run; so do tokens and times.
IDS = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b|\bw[0-9a-f]{12,16}\b")
VARIABLE = re.compile(rf"{IDS.pattern}|windlass_\S+|\d{{4}}-\d\d-\d\dT[0-9:.]+Z")
#: How many seconds a command may take.
PATIENCE = 120.0

PRELUDE = r"""
windlass() {
  if [ "$1" != serve ]; then command windlass "$@"; return; fi
  command windlass "$@" >serve.out 2>serve.log &
  until command curl --silent --output /dev/null "$SNIPPET_URL/readyz"; do
    kill -0 $! || { cat serve.log >&2; exit 1; }
    sleep 0.05
  done
}
curl() {
  local answer status=0
  # A stream has no end of its own.
  case "$*" in */v1/events*) local limit=2 ;; *) local limit=60 ;; esac
  answer=$(command curl --silent --show-error --max-time "$limit" --write-out '\n%{http_code}' "$@") || status=$?
  printf '%s\n' "${answer%$'\n'*}"
  printf '%s %s\n' "${answer##*$'\n'}" "${*//$'\n'/ }" >>statuses
  [ "$status" = 0 ] || [ "$limit" = 2 ]
}
set -eu
"""


@dataclass
class Command:
    """A command of a page, and what the page shows as its output."""

    text: str
    output: List[str] = field(default_factory=list)


@dataclass
class Page:
    """What a page has to run."""

    commands: List[Command]
    files: Dict[str, str]
    #: The curl commands in the tables.
    examples: List[str]


def read_page(name: str) -> Page:
    """Reads the blocks of a page. Raises `AssertionError` if one should be run and is not."""
    page = Page([], {}, [])
    before, info, block = "", None, ""
    for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
        if info is None:
            if line.startswith("```"):
                info, block = line[3:].strip(), ""
            elif line.strip():
                before = line.strip()
                page.examples += re.findall(r"^\|.*\| `(curl .*)` \|$", line)
        elif line == "```":
            add_block(page, f"{name}, the block before line {number}", info, block, before)
            info, before = None, ""
        else:
            block += f"{line}\n"
    return page


def add_block(page: Page, where: str, info: str, block: str, before: str) -> None:
    if info == "python":
        file = re.match(r"# (\w+\.py)\n", block)
        assert file, f"{where}: begin it with a comment that names its file, like # worker.py"
        page.files[file.group(1)] = block
    if info != "console":
        return
    if before != RUN:
        assert NOT_RUN.fullmatch(before) or not MUST_RUN.search(block), f"{where}: write {RUN} before it, or <!-- not run: why -->"
        return
    is_open = False
    for line in block.splitlines():
        if is_open:
            page.commands[-1].text += f"\n{line}"
        elif line.startswith("$ "):
            page.commands.append(Command(line[2:]))
        elif line:
            assert page.commands, f"{where}: it begins with an output"
            page.commands[-1].output.append(line)
        # A command goes on while a quotation is open.
        is_open = bool(page.commands) and page.commands[-1].text.count("'") % 2 == 1


class Shell:
    """A shell that runs one command after the other."""

    def __init__(self, folder: Path, environment: Dict[str, str]) -> None:
        self._errors = (folder / "errors").open("w+")
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._number = 0

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *_: Any) -> None:
        # With whatever it has left in the background.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._errors.close()

    def run(self, command: str) -> str:
        """Runs a command, which must succeed. Returns what it has printed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._number += 1
        end = f"@@{self._number}@@"
        timer = threading.Timer(PATIENCE, self._process.kill)
        timer.start()
        try:
            # Its standard input is not the shell's, which has the next commands.
            self._process.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s\\n' '{end}'\n")
            self._process.stdin.flush()
            lines: List[str] = []
            for line in self._process.stdout:
                if line == f"{end}\n":
                    return "".join(lines)
                lines.append(line)
        finally:
            timer.cancel()
        self._errors.seek(0)
        raise AssertionError(f"{command}\nended the shell after it had printed {lines}: {self._errors.read()}")


class Snippets(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-snippets-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        #: The ids that a page shows, and those that were printed in their place.
        self.real_ids: Dict[str, str] = {}

    def here(self, text: str) -> str:
        """A text of a page, with the address of this test's server."""
        text = re.sub(r"(127\.0\.0\.1|localhost):7077", self.address, text)
        return text.replace("https://jobs.example", f"http://{self.address}")

    def check_page(self, name: str) -> None:
        """Runs the commands of a page, one after the other in one shell, and compares what they print."""
        page = read_page(name)
        self.assertTrue(page.commands, f"{name} has nothing to run")
        for file, text in page.files.items():
            (self.folder / file).write_text(self.here(text))
        (self.folder / "bin").mkdir()
        (self.folder / "bin/windlass").symlink_to(binary())
        with Shell(self.folder, self.environment()) as shell:
            shell.run(PRELUDE)
            for command in page.commands:
                printed = shell.run(self.here(self.with_real_ids(command.text)))
                if command.output:
                    self.compare(command, printed)
        statuses = self.folder / "statuses"
        for line in statuses.read_text().splitlines() if statuses.exists() else []:
            self.assertLess(int(line[:3]), 400, f"{name}: {line}")

    def environment(self) -> Dict[str, str]:
        settings = {name: value for name, value in os.environ.items() if not name.startswith(("WINDLASS_", "OTEL_", "RUST_LOG"))}
        settings.update(
            PATH=os.pathsep.join([str(self.folder / "bin"), str(Path(sys.executable).parent), settings["PATH"]]),
            PYTHONPATH=str(Path(windlass.__file__).parents[1]),
            SNIPPET_URL=f"http://{self.address}",
            WINDLASS_LISTEN=self.address,
            TMPDIR=str(self.folder),
        )
        return settings

    def compare(self, command: Command, printed: str) -> None:
        """Compares an output with the one that the page shows, but for ids, tokens and times, and for where lines are broken. The ids
        that it shows stand for the real ones from here on."""
        shown = "".join(command.output)
        self.real_ids.update(zip(IDS.findall(shown), IDS.findall(printed)))
        compared = [re.sub(r"\s", "", VARIABLE.sub("…", text)) for text in (printed, shown)]
        self.assertEqual(compared[0], compared[1], command.text)

    def with_real_ids(self, command: str) -> str:
        """A command with the ids that were printed here in place of those that the page shows."""
        return IDS.sub(lambda id: self.real_ids.get(id.group(), id.group()), command)

    def test_the_readme(self) -> None:
        self.check_page("README.md")

    def test_the_page_about_the_server(self) -> None:
        self.check_page("docs/server.md")

    def test_the_page_about_the_worker_protocol(self) -> None:
        self.check_page("docs/worker-protocol.md")

    def test_the_readme_of_this_package(self) -> None:
        self.check_page("clients/python/README.md")

    def test_a_block_that_should_be_run_is_not_forgotten(self) -> None:
        page = Page([], {}, [])
        with self.assertRaisesRegex(AssertionError, "not run: why"):
            add_block(page, "x", "console", "$ curl x\n", "")
        with self.assertRaisesRegex(AssertionError, "names its file"):
            add_block(page, "x", "python", "import os\n", "")
        add_block(page, "x", "console", "$ curl x\n", "<!-- not run: no net -->")
        self.assertEqual(page.commands, [])


class Examples(ServerCase):
    """The example of each request in the table of docs/server.md."""

    #: Requests that the state of the example refuses: `nap` has ended, its inbox is empty, `order-7` has no journal, there is no webhook.
    REFUSED = re.compile(r"/jobs/nap/(retry|pause|priority|cancel)|/inbox/3|/order-7/fork|/alerts/test")

    def test_each_is_accepted(self) -> None:
        examples = read_page("docs/server.md").examples
        self.assertGreater(len(examples), 40)
        client = Client(self.url)
        self.addCleanup(client.close)
        noops = [NewJob("mail", key="welcome-7"), NewJob("noop", key="archive-7"), NewJob("order", key="order-7"), NewJob("noop", key="nap")]
        client.submit_many(noops)
        client.submit("approval", {"Ask": {"what": "a release"}}, key="r2")
        client.cancel("nap")
        schedule = f"curl -X PUT {self.url}/v1/schedules/nightly -H \"$j\" -d '{{\"calendar\": \"@daily\", \"kind\": \"noop\"}}'"
        variables = f"u={self.url} j='content-type: application/json'"
        for example in examples:
            with self.subTest(example=example):
                script = f"{PRELUDE}{variables}\n{schedule} >/dev/null\nrm statuses\n{example}"
                finished = subprocess.run(
                    ["bash", "-c", script], cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=60
                )
                self.assertEqual(finished.returncode, 0, finished.stderr)
                status = int((self.folder / "statuses").read_text()[:3])
                if status >= 400:
                    self.assertRegex(example, self.REFUSED, finished.stdout)
                    self.assertIn(status, (404, 409), finished.stdout)
                    self.assertNotIn("no such path", finished.stdout)


if __name__ == "__main__":
    unittest.main()
