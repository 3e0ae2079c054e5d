// The page of an application: what the server says of it, once a second. All texts of data go in as text, never as markup.

import { Charts } from "./charts.js";
import { controls } from "./controls.js";
import { letters } from "./letters.js";
import { listen } from "./live.js";
import { store } from "./store.js";
import { Table, options, shown, text, when } from "./tables.js";
import { flows, picture } from "./topology.js";

const at = (id) => document.getElementById(id);
const percent = (value) => (value === undefined || value === null ? "" : `${Math.round(value * 100)} %`);

const subs = new Table(at("subs"), [
  { name: "sub-topology", wide: 11, of: ([name]) => name },
  { name: "records/s", number: true, of: ([, sub]) => Math.round(sub.metrics?.["records-per-s-10s"] ?? 0) },
  { name: "lag", number: true, wide: 4, of: ([, sub]) => sub.lag },
  { name: "records", number: true, wide: 6, of: ([, sub]) => sub.records },
  { name: "written", number: true, wide: 6, of: ([, sub]) => sub.records_written },
  { name: "dead letters", number: true, wide: 7, of: ([, sub]) => sub.counters?.dead_letters ?? 0 },
  { name: "late", number: true, wide: 4, of: ([, sub]) => sub.counters?.late_records ?? 0 },
  { name: "round", number: true, of: ([, sub]) => sub.round },
  { name: "tasks", number: true, wide: 4, of: ([, sub]) => sub.tasks },
  { name: "containers", number: true, wide: 6, of: ([, sub]) => sub.containers },
  { name: "factor", number: true, of: ([, sub]) => sub.elasticity_factor },
  { name: "now", wide: 21, of: ([, sub]) => now(sub) },
], { fixed: true });
const streams = new Table(at("streams"), [
  { name: "stream", wide: 14, of: (one) => one.stream },
  { name: "partitions", number: true, wide: 6, of: (one) => one.partitions },
  { name: "records/s read", number: true, wide: 8, of: (one) => one.records_per_s },
  { name: "lag", number: true, of: (one) => one.lag },
], { fixed: true });
const tasks = new Table(
  at("task-table"),
  [
    { name: "task", wide: 11, of: (one) => one.task },
    { name: "sub-topology", wide: 8.5, of: (one) => one.sub_topology },
    { name: "location", wide: 7, of: (one) => one.location ?? one.host ?? "" },
    { name: "processor", wide: 6, of: (one) => one.processor ?? "" },
    { name: "container", number: true, wide: 6.5, of: (one) => one.container },
    { name: "came", wide: 11, of: came },
    { name: "lag", number: true, wide: 4.5, of: (one) => one.lag },
    { name: "records/s", number: true, wide: 6, of: (one) => Math.round(one.metrics["records-per-s-10s"] ?? 0) },
    { name: "busy", number: true, wide: 3.5, of: (one) => percent(one.metrics["busy-share-10s"]) },
    { name: "reads", wide: 9, of: (one) => one.reads.join(" ") },
    { name: "last commit (UTC)", wide: 10, of: (one) => when(one.last_commit) },
    { name: "last error", wide: 12, of: (one) => (one.last_error ? `${when(one.last_error.at)}: ${one.last_error.error}` : "") },
  ],
  { sorts: true, fixed: true },
);
const history = new Table(
  at("history-table"),
  [
    { name: "when (UTC)", of: (one) => when(one.at) },
    { name: "what", of: (one) => `${one.kind}: ${one.what}` },
    { name: "outcome", of: (one) => one.outcome },
    { name: "job model", number: true, of: (one) => one.job_model },
    { name: "pause", number: true, of: (one) => (one.pause_ms === null ? "" : `${shown(one.pause_ms / 1000)} s`) },
    { name: "by", of: (one) => one.requested_by },
    { name: "from", of: (one) => one.from },
    { name: "to", of: (one) => one.to },
    { name: "why", of: (one) => one.why },
  ],
  { empty: "no change yet" },
);
const startpoints = new Table(
  at("startpoint-table"),
  [
    { name: "id", of: (one) => one.id },
    { name: "stream", of: (one) => one.stream },
    { name: "partition", number: true, of: (one) => one.partition },
    { name: "startpoint", of: (one) => one.startpoint },
    { name: "state", of: (one) => one.state },
    { name: "status", of: (one) => one.detail ?? one.status },
    { name: "written by", of: (one) => one.written_by },
    { name: "written at (UTC)", of: (one) => when(one.written_at) },
  ],
  { empty: "no startpoint is set" },
);
const charts = new Charts(at("phases"), at("rates"), at("charted"), at("rounds-note"));
const showLetters = letters();
let last = null;

function now(sub) {
  if (sub.stopped_by) return "stopped, see below";
  return last.status.running ? sub.waiting_for : "";
}

function came(one) {
  if (!one.restoring) return one.came ?? "";
  const { done_bytes: done, total_bytes: total, left_s: left } = one.restoring;
  const share = total ? Math.round((100 * done) / total) : 0;
  if (left === null) return `restoring ${share} %`;
  return `restoring ${share} %, ${left < 120 ? `${Math.round(left)} s` : `${shown(Math.round(left / 60))} min`} left`;
}

function wanted(one) {
  const words = at("filter").value.toLowerCase();
  return !words || [one.task, one.sub_topology, one.location, one.host, one.processor, came(one), one.last_error?.error, ...one.reads].join(" ").toLowerCase().includes(words);
}

function filtered() {
  if (!last?.tasks) return;
  const found = last.tasks.filter(wanted);
  tasks.fill(found);
  text(at("task-count"), `${found.length} of ${last.tasks.length} tasks`);
}

function alarms(found) {
  const said = [];
  for (const [name, sub] of Object.entries(found)) {
    if (sub.stopped_by) said.push([`${name} has stopped: ${sub.stopped_by}`, "alarm"]);
    if (sub.scale_waits_for) said.push([`${name}: ${sub.scale_waits_for}`, ""]);
    for (const note of sub.notes ?? []) said.push([`${name}: ${note}`, ""]);
  }
  const list = at("alarms");
  while (list.children.length > said.length) list.lastChild.remove();
  while (list.children.length < said.length) list.append(document.createElement("li"));
  said.forEach(([words, kind], number) => {
    list.children[number].className = kind;
    text(list.children[number], words);
  });
}

function badge(words, kind) {
  text(at("running"), words);
  at("running").className = `badge ${kind}`;
}

// While the server does not answer, what is shown of a job may be outdated.
function connected(yes) {
  text(at("connection"), yes ? "this page is kept fresh" : "cut off from the server: what is shown may be old; trying again");
  at("connection").classList.toggle("alarm", !yes);
  if (!yes) badge("not known", "bad");
}

function header(found) {
  const { status } = found;
  document.title = `${found.application} — Headrace`;
  text(at("application"), found.application);
  if (status?.running) badge("running", "good");
  else badge("not running", "bad");
  const holder = status?.holder;
  const held = holder ? `process ${holder.pid} on ${holder.host}, last heartbeat ${shown(holder.silent_s)} s ago. ` : "";
  text(at("held"), status ? `${held}Job model ${status.job_model}, on ${status.system}. Counts are of ${status.counts_of}.` : "");
}

function show(found) {
  at("problem").hidden = !found.problem;
  text(at("problem"), found.problem ?? "");
  if (!found.application) {
    badge("not known", "bad");
    return;
  }
  last = found;
  header(found);
  showLetters(found.dead_letters);
  at("letters-form").hidden = !found.allow_changes;
  if (!found.status) return;
  const known = found.status.sub_topologies;
  options(at("charted"), Object.keys(known));
  options(at("store"), found.stores);
  for (const name of ["startpoint-stream", "expansion-stream"]) options(at(name), found.streams.map((one) => one.stream));
  options(at("scale-sub"), ["", ...Object.keys(known)], (value) => value || "all");
  subs.fill(Object.entries(known));
  streams.fill(found.streams);
  flows(at("picture"), found.streams);
  alarms(known);
  filtered();
  history.fill(found.history);
  startpoints.fill(found.startpoints);
  charts.add(known, Date.parse(found.at) / 1000);
  for (const id of ["changes", "changes-link"]) at(id).hidden = !found.allow_changes;
}

at("filter").addEventListener("input", filtered);
controls();
store();
picture(at("picture")).then(() => last && flows(at("picture"), last.streams ?? []));
listen(show, connected);
