/** Queue of runs: waiting, running and ended jobs, updated by server-sent events. */

import { ask, element, queryOf } from "./dom.js";
import { _, ngettext } from "./words.js";

/** @typedef {{id: string, scenario: string, sets: string[], folder: string, cases: number, command: string, state: string, done: number, message: string, again: boolean}} Job */

/** @type {Record<string, string>} */
const STATES = { waiting: _("waiting"), running: _("is running"), done: _("done"), failed: _("failed"), cancelled: _("cancelled"), interrupted: _("interrupted") };

export class QueueView {
  /** @param {(job: Job) => void} onDone  called for every job that ends without failure while the page is open */
  constructor(onDone) {
    this.onDone = onDone;
    /** @type {Map<string, string>} */
    this.states = new Map();
    this.watching = false;
    this.list = element("ul", { class: "jobs" });
    this.problem = element("p", { class: "problem", role: "alert", hidden: true });
    this.box = element("section", { "aria-label": _("Queue"), class: "queue", hidden: true }, element("h2", {}, _("Queue")), this.problem, this.list);
  }

  watch() {
    if (this.watching) return;
    this.watching = true;
    const news = new EventSource("/api/events");
    news.addEventListener("message", (event) => {
      this.problem.hidden = true;
      this.update(JSON.parse(event.data).jobs);
    });
    news.addEventListener("error", () => {
      this.problem.textContent = _("The server does not answer. What was finished is kept; start gpufleet serve again.");
      this.problem.hidden = this.box.hidden;
    });
    window.addEventListener("pagehide", () => news.close());
  }

  /** @param {Job[]} jobs */
  update(jobs) {
    this.box.hidden = !jobs.length;
    this.list.replaceChildren(...jobs.map((job) => this.line(job)));
    for (const job of jobs) {
      if (job.state === "done" && this.states.has(job.id) && this.states.get(job.id) !== "done") this.onDone(job);
      this.states.set(job.id, job.state);
    }
  }

  /** @param {Job} job @returns {HTMLElement} */
  line(job) {
    const sets = job.command === "run" ? job.sets : job.sets.filter((one) => !/^(sensitivity|question)=/.test(one));
    const name = [job.command === "run" ? job.scenario : _("{command} of {scenario}", { command: job.command, scenario: job.scenario }), ...sets].join(", ");
    const open = ["waiting", "running"].includes(job.state);
    const title = job.state === "done" && job.command === "run" ? element("a", { href: `/?${queryOf({ run: job.folder, set: {} })}` }, name) : element("span", {}, name);
    const line = element("li", { "data-state": job.state }, title, " ", STATES[job.state] ?? job.state);
    if (job.state === "running") {
      const told = job.cases ? ngettext("{done} of {count} simulation", "{done} of {count} simulations", job.cases, { done: job.done }) : ngettext("{count} simulation", "{count} simulations", job.done);
      line.append(" ", told, " ", element("progress", { max: job.cases || 1, value: job.cases ? job.done : undefined, "aria-label": _("{name}: progress", { name }) }));
    }
    if (open) {
      const cancel = element("button", { type: "button", "aria-label": _("Cancel {name}", { name }) }, _("Cancel"));
      cancel.addEventListener("click", () => ask(`/api/jobs/${job.id}`, { method: "DELETE" }).catch(() => undefined));
      line.append(" ", cancel);
    }
    if (job.again) {
      const again = element("button", { type: "button", "aria-label": _("Continue {name}", { name }) }, _("Continue"));
      again.addEventListener("click", () => ask(`/api/jobs/${job.id}`, { method: "POST" }).catch(() => undefined));
      line.append(" ", again);
    }
    if (job.message) line.append(element("div", { class: "sub" }, job.message));
    return line;
  }
}
