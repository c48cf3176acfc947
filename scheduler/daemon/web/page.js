// The page: one picture of the cluster, asked for anew when something has happened, and the events as they do.
//
// What comes from outside is set as text or as an attribute of ours, never as markup.
"use strict";

const kPalette = ["#4e79a7", "#b5651d", "#3a7d44", "#a33b3b", "#6f5a9c", "#2f7f86", "#8a6d1f", "#9c4f7c",
                  "#52637a", "#7a5c45", "#2f6db5", "#5f7d2a"];
const kUnknown = "#7a8699";
const kMostEvents = 2000;      // that the timeline is made of
const kShownEvents = 100;      // in the list
const kTimelineRows = 40;
const kRefreshMs = 5000;       // what changes without an event: times, fairness
const kGatherMs = 200;         // several events in a row are one picture
const kManyDevices = 128;      // more are drawn without words
const kEnded = new Set(["DONE", "FAILED", "CANCELLED"]);
const kBadges = {RUNNING: "good", DONE: "good", FAILED: "bad", CANCELLED: "warn", LOST: "bad", PAUSED: "warn",
                 PAUSING: "warn"};

let picture = null;
let colours = new Map();  // of tenants
const events = [];
let lastEvent = 0;
let clockSkew = 0;        // of the scheduler's clock to this one

// ---- Making elements

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function draw(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function fill(id, children) {
  document.getElementById(id).replaceChildren(...children);
}

function cell(text, className) {
  return make("td", text, className);
}

// ---- Values as people read them

function now() {
  return Date.now() + clockSkew;
}

function timeText(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

function clockText(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

function stateOf(job) {
  return job.state.replace("QUEUE_STATE_", "");
}

// A colour belongs to a tenant as long as the page is open.
function colourOf(tenant) {
  if (tenant === undefined) return kUnknown;
  if (!colours.has(tenant)) colours.set(tenant, kPalette[colours.size % kPalette.length]);
  return colours.get(tenant);
}

// ---- The parts of the page

function showSummary() {
  const info = picture.info;
  const values = [["policy", info.policy], ["devices free", `${info.free} of ${info.devices}`],
                  ["running", info.running], ["waiting", info.waiting],
                  ["up", timeText(now() - Number(info.started_ms))]];
  fill("summary", values.map(([name, value]) => {
    const group = make("div");
    group.append(make("dt", name), make("dd", String(value)));
    return group;
  }));
}

function nodeBadge(node) {
  if (!node.reachable) return make("span", "unreachable", "badge bad");
  if (!node.draining) return make("span", "ready", "badge good");
  return make("span", node.free === node.devices ? "drained" : "draining", "badge warn");
}

function nodeRemark(node) {
  const remarks = [];
  if (node.reason) remarks.push(node.reason);
  if (Number(node.deadline_ms) > 0) {
    const saved = (node.saves ?? []).filter((save) => save.state === "SAVE_STATE_SAVED").length;
    const at = new Date(Number(node.deadline_ms)).toLocaleString("en-GB");
    remarks.push(`gone at ${at}, ${saved} of ${(node.saves ?? []).length} jobs saved`);
  }
  if (Number(node.maintenance_end_ms) > 0) {
    const from = new Date(Number(node.maintenance_start_ms)).toLocaleString("en-GB");
    remarks.push(`maintenance from ${from} for ${timeText(node.maintenance_end_ms - node.maintenance_start_ms)}`);
  }
  return remarks.join("; ") || `${node.free} of ${node.devices} free`;
}

function deviceCell(job, ordinal, tenants) {
  const box = make("div", undefined, job ? "cell held" : "cell");
  box.append(make("b", String(ordinal)), make("span", job || "free"));
  box.title = job ? `device ${ordinal}: ${job} of ${tenants.get(job) ?? "?"}` : `device ${ordinal}: free`;
  if (job) box.style.backgroundColor = colourOf(tenants.get(job));
  return box;
}

function showNodes(tenants) {
  document.body.classList.toggle("many", picture.info.devices > kManyDevices);
  fill("nodes", picture.nodes.map((node) => {
    const block = make("div", undefined, node.reachable ? "node" : "node away");
    const title = make("div", undefined, "node-title");
    title.append(make("strong", node.name), nodeBadge(node), make("span", nodeRemark(node)));
    const cells = make("div", undefined, "cells");
    cells.append(...node.jobs.map((job, ordinal) => deviceCell(job, ordinal, tenants)));
    block.append(title, cells);
    return block;
  }));
  fill("legend", picture.tenants.map((tenant) => {
    const entry = make("span");
    const swatch = make("span", undefined, "swatch");
    swatch.style.backgroundColor = colourOf(tenant.name);
    entry.append(swatch, tenant.name);
    return entry;
  }));
}

function bar(part, colour, text) {
  const box = make("div", undefined, "bar");
  const track = make("div", undefined, "track");
  const filled = make("div", undefined, "fill");
  filled.style.width = `${100 * Math.max(0, Math.min(1, part))}%`;
  filled.style.backgroundColor = colour;
  track.append(filled);
  box.append(track, make("span", text));
  return box;
}

function showTenants() {
  fill("tenants", picture.tenants.map((tenant) => {
    const row = make("tr");
    const held = make("td"), fair = make("td");
    const colour = colourOf(tenant.name);
    held.append(bar(tenant.quota > 0 ? tenant.held / tenant.quota : 0, colour,
                    `${+tenant.held.toFixed(2)} of ${+tenant.quota.toFixed(2)}`));
    fair.append(bar(tenant.fairness, colour, tenant.fairness.toFixed(3)));
    row.append(cell(tenant.name), cell(String(+tenant.weight.toFixed(3)), "number"), held,
               cell(String(tenant.demand), "number"), cell(String(tenant.running), "number"),
               cell(String(tenant.waiting), "number"), fair, cell(tenant.fairness_all.toFixed(3), "number"),
               cell(tenant.utilized_hours.toFixed(2), "number"));
    return row;
  }));
}

function jobTime(job) {
  const from = Number(job.started_ms) || Number(job.submitted_ms);
  return timeText((Number(job.ended_ms) || now()) - from);
}

function jobPlace(job) {
  if (!job.node) return "";
  return job.devices.length > 0 ? `${job.node}: ${job.devices.join(",")}` : job.node;
}

// Launches are the program's own measure: they compare a job with itself alone.
function rateText(job) {
  if (!job.rate_unit) return "";
  const rate = job.rate < 100 ? job.rate.toFixed(1) : job.rate.toFixed(0);
  return job.rate_unit === "iterations" ? `${rate} it/s` : `${rate}/s`;
}

function jobRemark(job) {
  return [job.beside && `beside ${job.beside}`, job.reason].filter(Boolean).join("; ");
}

function jobRow(job) {
  const state = stateOf(job);
  const row = make("tr");
  const badge = make("td");
  badge.append(make("span", state.toLowerCase(), `badge ${kBadges[state] ?? ""}`));
  const tenant = make("td");
  const swatch = make("span", undefined, "swatch");
  swatch.style.backgroundColor = colourOf(job.tenant);
  tenant.append(swatch, job.tenant);
  row.append(cell(job.name), tenant, badge, cell(String(job.gpus), "number"), cell(String(job.priority), "number"),
             cell(jobPlace(job)), cell(jobTime(job), "number"), cell(String(job.pauses), "number"),
             cell(String(job.migrations), "number"), cell(String(job.restarts), "number"),
             cell(Number(job.started_ms) > 0 ? job.fairness.toFixed(2) : "", "number"), cell(rateText(job), "number"),
             cell(jobRemark(job), "wide"));
  return row;
}

function showQueue() {
  // Who lives comes first, then those that ended last.
  const live = picture.jobs.filter((job) => !kEnded.has(stateOf(job)));
  const ended = picture.jobs.filter((job) => kEnded.has(stateOf(job)));
  ended.sort((a, b) => b.ended_ms - a.ended_ms);
  fill("queue", [...live, ...ended].map(jobRow));
  document.getElementById("omitted").textContent =
      picture.omitted > 0 ? `and ${picture.omitted} more` : "";
}

function showEvents() {
  fill("events", events.slice(-kShownEvents).reverse().map((event) => {
    const row = make("tr");
    row.append(cell(clockText(event.at)), cell(event.kind), cell(event.job), cell(event.node), cell(event.text, "wide"));
    return row;
  }));
}

// ---- The timeline, out of events

// What a job does after an event of that kind.
const kPhases = {submitted: "waits", started: "runs", resumed: "runs", moved: "runs", paused: "paused", lost: "waits",
                 done: null, failed: null, cancelled: null};

// By job: its spans {phase, from, to, node} and marks {kind, at, node}.
function history() {
  const lanes = new Map();
  for (const event of events) {
    if (!event.job || !(event.kind in kPhases)) continue;
    if (!lanes.has(event.job)) lanes.set(event.job, {job: event.job, spans: [], marks: [], last: 0});
    const lane = lanes.get(event.job);
    const open = lane.spans.at(-1);
    if (open && open.to === null) open.to = event.at;
    const phase = kPhases[event.kind];
    if (phase) lane.spans.push({phase, from: event.at, to: null, node: event.node});
    if (event.kind === "moved" || event.kind === "lost") lane.marks.push({kind: event.kind, at: event.at, text: event.text});
    lane.last = event.at;
  }
  return [...lanes.values()];
}

const kLabelWidth = 170, kWidth = 1500, kRowHeight = 20, kTop = 22;

function timeAxis(svg, from, to, height, x) {
  const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400];
  const wanted = (to - from) / 1000 / 9;
  const step = 1000 * (steps.find((seconds) => seconds >= wanted) ?? 86400);
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    svg.append(draw("line", {class: "grid", x1: x(at), x2: x(at), y1: kTop - 4, y2: height}));
    svg.append(draw("text", {class: "axis", x: x(at), y: kTop - 9, "text-anchor": "middle"}, clockText(at)));
  }
}

function drawLane(svg, lane, y, x, to, colour) {
  svg.append(draw("text", {x: 0, y: y + 12}, lane.job.length > 24 ? lane.job.slice(0, 23) + "…" : lane.job));
  for (const span of lane.spans) {
    const left = x(span.from), width = Math.max(1.5, x(span.to ?? to) - left);
    const shape = draw("rect", {x: left, y: y + 2, width, height: kRowHeight - 6, rx: 2, "data-phase": span.phase});
    if (span.phase === "waits") shape.setAttribute("class", "wait");
    else shape.setAttribute("fill", span.phase === "runs" ? colour : `url(#paused-${colour.slice(1)})`);
    const end = span.to ?? to;
    shape.append(draw("title", {}, `${lane.job} ${span.phase}${span.node ? " on " + span.node : ""}, ` +
                                       `${clockText(span.from)} to ${clockText(end)}, ${timeText(end - span.from)}`));
    svg.append(shape);
  }
  for (const mark of lane.marks) {
    const shape = draw("text", {class: mark.kind, x: x(mark.at), y: y + 14, "text-anchor": "middle",
                                "data-mark": mark.kind}, mark.kind === "moved" ? "▶" : "✕");
    shape.append(draw("title", {}, mark.text));
    svg.append(shape);
  }
}

function pausedPattern(colour) {
  const pattern = draw("pattern", {id: `paused-${colour.slice(1)}`, width: 6, height: 6,
                                   patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"});
  pattern.append(draw("rect", {width: 2.4, height: 6, fill: colour}));
  return pattern;
}

function showTimeline(tenants) {
  // Those in which something happened last, in the order of their beginning.
  const lanes = history().sort((a, b) => b.last - a.last).slice(0, kTimelineRows);
  lanes.sort((a, b) => a.spans[0]?.from - b.spans[0]?.from);
  if (lanes.length === 0) {
    fill("timeline", [make("p", "nothing has happened yet", "note")]);
    return;
  }
  const to = Math.max(now(), ...lanes.map((lane) => lane.last));
  const from = Math.min(...lanes.map((lane) => lane.spans[0]?.from ?? lane.last), to - 1000);
  const x = (at) => kLabelWidth + (kWidth - kLabelWidth - 40) * (at - from) / (to - from);
  const height = kTop + lanes.length * kRowHeight;
  const svg = draw("svg", {viewBox: `0 0 ${kWidth} ${height}`, role: "img", "aria-label": "what each job did when"});
  const patterns = draw("defs", {});
  patterns.append(...[...kPalette, kUnknown].map(pausedPattern));
  svg.append(patterns);
  timeAxis(svg, from, to, height, x);
  lanes.forEach((lane, index) => {
    drawLane(svg, lane, kTop + index * kRowHeight, x, to, colourOf(tenants.get(lane.job)));
  });
  fill("timeline", [svg]);
}

// ---- Keeping it fresh

function show() {
  const tenants = new Map(picture.jobs.map((job) => [job.name, job.tenant]));
  picture.tenants.forEach((tenant) => colourOf(tenant.name));
  showSummary();
  showNodes(tenants);
  showTenants();
  showTimeline(tenants);
  showQueue();
  showEvents();
}

function take(event) {
  const number = Number(event.number);
  if (number <= lastEvent) return false;
  lastEvent = number;
  events.push({...event, number, at: Number(event.at_ms)});
  if (events.length > kMostEvents) events.splice(0, events.length - kMostEvents);
  return true;
}

function setLink(text, className) {
  const link = document.getElementById("link");
  link.textContent = text;
  link.className = `badge ${className}`;
}

async function refresh() {
  const answer = await fetch(`snapshot.json?after=${lastEvent}`, {cache: "no-store"});
  if (!answer.ok) throw new Error(`the scheduler says ${answer.status}`);
  picture = await answer.json();
  clockSkew = Number(picture.now_ms) - Date.now();
  picture.events.forEach(take);
  show();
}

let asked = null;  // the refresh that is about to be made
function refreshSoon() {
  if (asked !== null) return;
  asked = setTimeout(() => {
    asked = null;
    refresh().catch(() => setLink("no answer", "bad"));
  }, kGatherMs);
}

function follow() {
  const stream = new EventSource(`events?after=${lastEvent}`);
  stream.onopen = () => {
    setLink("live", "good");
    refreshSoon();
  };
  stream.onmessage = (message) => {
    if (take(JSON.parse(message.data))) refreshSoon();
  };
  // It tries again by itself, unless the scheduler has refused it.
  stream.onerror = () => {
    setLink("not connected", "bad");
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, kRefreshMs);
  };
}

async function begin() {
  try {
    await refresh();
  } catch (error) {
    setLink("no answer", "bad");
    setTimeout(begin, kRefreshMs);
    return;
  }
  follow();
  setInterval(refreshSoon, kRefreshMs);
}

begin();
