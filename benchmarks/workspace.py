"""Time from a click to the drawn answer in the workspace, in Chromium: request, server and page.

    python benchmarks/workspace.py [RUN]    # a finished run; default: 800 cases of the demo are simulated first

Needs playwright and Chromium. Times are those of the first answer, of two prices and of two limits.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

TREE = Path(__file__).resolve().parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(TREE)}
RATES = [round(0.1 + 0.05 * place, 2) for place in range(80)]
SETS = ("horizon_s=120", "warmup_s=20", f"sweep={{workload.arrivals.rate_rps: {RATES}}}")
MOVES = (
    ("price", "site.electricity_usd_per_kwh", "0.2"),
    ("price", "site.electricity_usd_per_kwh", "0.21"),
    ("limit", "slo.tpot_s", "0.06"),
    ("limit", "slo.tpot_s", "0.07"),
)
QUIET_MS = 1500
"""Time without a change of the page after which its answer is drawn [ms]."""
WATCH = """
window.seen = { answers: 0, changed: 0, clicked: 0, inputs: [] };
const fetched = window.fetch;
window.fetch = async (...given) => {
  const answer = await fetched(...given);
  if (!String(given[0]).startsWith("/api/answer")) return answer;
  const text = await answer.text();
  Object.assign(seen, { answers: seen.answers + 1, answered: performance.now(), size: text.length });
  seen.inputs = JSON.parse(text).inputs;
  return new Response(text, { status: answer.status, headers: answer.headers });
};
new MutationObserver(() => { seen.changed = performance.now(); })
  .observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
"""
MOVE = """([path, value]) => {
  const { label } = seen.inputs.find((one) => one.path === path);
  const slider = [...document.querySelectorAll("aside input[type=range]")].find((one) => one.ariaLabel === label);
  const field = slider.parentElement.querySelector("input[type=text]");
  seen.clicked = performance.now();
  field.value = value;
  field.dispatchEvent(new Event("change"));
}"""


def simulate(run: Path) -> None:
    """Simulate 800 cases of the demo into the folder *run*."""
    options = [word for item in SETS for word in ("--set", item)]
    command = ["run", str(TREE / "scenarios/4x4090-vs-2xa100.yaml"), *options, "--quiet", "--no-report"]
    subprocess.run([sys.executable, "-m", "sim", *command, "--out", str(run)], env=ENVIRONMENT, check=True)


def cpu_s(process: int) -> float:
    """Return the CPU time of *process* [s]."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait(page: Page, answers: int, server: int) -> dict[str, Any]:
    """Wait for that number of *answers* and until the page no longer changes; return what it has seen.

    The server's CPU time is that of the answer: afterwards it reads the run for the next one.
    """
    server_s = 0.0
    while True:
        page.wait_for_timeout(50)
        seen: dict[str, Any] = page.evaluate("({...seen, now: performance.now(), inputs: []})")
        if seen["answers"] >= answers:
            server_s = server_s or cpu_s(server)
            if seen["changed"] > seen["answered"] and seen["now"] - seen["changed"] > QUIET_MS:
                return seen | {"server_s": server_s}


def measure(run: Path) -> None:
    """Print the times of *run* in a workspace of its folder."""
    command = ["serve", "--no-open", "--no-token", "--port", "0", "--workspace", str(run.parent)]
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "sim", *command], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    with sync_playwright() as tools:
        found = re.search(r"http://[\d.:]+", server.stdout.readline())
        assert found is not None
        browser = tools.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.add_init_script(WATCH)
        client = page.context.new_cdp_session(page)
        client.send("Performance.enable", {"timeDomain": "threadTicks"})

        def page_cpu_s() -> float:
            metrics = client.send("Performance.getMetrics")["metrics"]
            return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

        def report(name: str, answers: int, server_s: float, page_s: float) -> None:
            seen = wait(page, answers, server.pid)
            request_s, drawn_s = ((seen[end] - seen["clicked"]) / 1e3 for end in ("answered", "changed"))
            print(
                f"{name:6} answered {request_s:5.2f} s  drawn {drawn_s:5.2f} s  "
                f"CPU of server {seen['server_s'] - server_s:5.2f} s, of the page {page_cpu_s() - page_s:5.2f} s  "
                f"{seen['size'] / 1024:.0f} KiB",
                flush=True,
            )

        page.goto(found[0])
        page.wait_for_timeout(5000)  # the server prepares itself
        before = cpu_s(server.pid), 0.0
        page.goto(f"{found[0]}/?run={run.name}")
        report("first", 1, *before)
        page.wait_for_timeout(5000)  # the server reads the run for its sliders
        for answers, (name, path, value) in enumerate(MOVES, start=2):
            before = cpu_s(server.pid), page_cpu_s()
            page.evaluate(MOVE, [path, value])
            report(name, answers, *before)
        browser.close()
    server.terminate()
    server.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as folder:
            simulate(Path(folder) / "run")
            measure(Path(folder) / "run")
