// The page of Kerf. It asks for /api/view and draws it. Every text of the cluster is set as text, never as markup.
"use strict";

const ASK_EVERY = 2000;
const ASK_AGAIN_AFTER_FAILURE = 5000;
const $ = (id) => document.getElementById(id);

/** A new element with classes, text and children. */
function make(tag, classes, text, ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (text !== undefined && text !== null) element.textContent = text;
  element.append(...children);
  return element;
}

function svg(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Words and numbers

const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
const dollars = (price) => {
  const number = Number(price);
  const decimals = number >= 100 ? 2 : number >= 1 ? 3 : 4;
  return `$${number.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals })}`;
};
const percent = (used, of) => (of > 0 ? `${Math.round((100 * used) / of)}%` : "–");
const cores = (millis) => (millis % 1000 === 0 ? `${millis / 1000}` : (millis / 1000).toFixed(millis < 10000 ? 2 : 1));
function bytes(amount) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) { amount /= 1024; unit += 1; }
  return `${amount >= 100 || Number.isInteger(amount) ? Math.round(amount) : amount.toFixed(1)} ${units[unit]}`;
}
function age(from, now) {
  const seconds = Math.max(0, Math.round((Date.parse(now) - Date.parse(from)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}
const clock = (time, withSeconds = true) => {
  const at = new Date(time);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}${withSeconds ? `:${two(at.getUTCSeconds())}` : ""}`;
};

// Asking

let known = null;
let view = null;
let failures = 0;

async function ask() {
  let wait = ASK_EVERY;
  try {
    const headers = known ? { "If-None-Match": known } : {};
    const answer = await fetch("api/view", { headers, cache: "no-store" });
    if (answer.status === 200) {
      known = answer.headers.get("ETag");
      view = await answer.json();
      draw();
    } else if (answer.status !== 304) {
      throw new Error(`the operator answers ${answer.status}`);
    }
    failures = 0;
    showStatus();
  } catch (error) {
    failures += 1;
    wait = ASK_AGAIN_AFTER_FAILURE;
    showStatus();
  }
  setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", ask, { once: true }) : ask()), wait);
}

function showStatus() {
  const [kind, text] = failures > 0
    ? ["lost", `No answer from the operator. What you see is of ${view && view.now ? `${clock(view.now)} UTC` : "before"}`]
    : !view ? ["", "Connecting"]
    : view.nothing ? ["wait", sentence(view.nothing)]
    : view.about.demo ? ["live", `${view.about.demo}, ${clock(view.now)} UTC there`]
    : view.leads ? ["live", `Leader, as of ${clock(view.now)} UTC`]
    : ["wait", `Standby, as of ${clock(view.now)} UTC`];
  $("dot").className = `dot ${kind}`;
  if ($("status-text").textContent !== text) $("status-text").textContent = text;
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// Drawing

function draw() {
  $("version").textContent = view.about.version;
  const standby = !view.nothing && !view.leads;
  $("notice").hidden = !view.nothing && !standby;
  $("notice").textContent = view.nothing
    ? `${sentence(view.nothing)}. This page fills when it is done.`
    : "This replica stands by: another one leads and decides. Nodes, pools and prices are as this replica sees them; decisions and refusals are on the leader's page.";
  if (view.nothing) return;
  drawTotals();
  drawChart();
  drawNodes();
  drawLog();
  drawRefusals(standby);
  drawPools();
}

function drawTotals() {
  const { totals } = view;
  const { fill } = totals;
  $("t-price").textContent = `${dollars(totals.pricePerHour)}/h`;
  $("t-price-note").textContent = totals.unpriced ? `without ${count(totals.unpriced, "node")} of unknown price` : `${dollars(totals.pricePerHour * 730)} a month`;
  const number = (state) => view.nodes.filter((node) => node.state === state).length;
  $("t-nodes").textContent = totals.nodes.toLocaleString("en");
  $("t-nodes-note").textContent = [[number("coming"), "coming"], [number("going"), "going"]].filter(([many]) => many).map(([many, what]) => `${many} ${what}`).join(", ") || "all at rest";
  $("t-pods").textContent = totals.pods.toLocaleString("en");
  $("t-pods-note").textContent = totals.podsToPlace ? `${count(totals.podsToPlace, "pod")} to place` : "all have a place";
  $("t-cpu").textContent = percent(fill.cpu, fill.cpuOf);
  $("t-cpu-note").textContent = `${cores(fill.cpu)} of ${cores(fill.cpuOf)}`;
  $("t-memory").textContent = percent(fill.memory, fill.memoryOf);
  $("t-memory-note").textContent = `${bytes(fill.memory)} of ${bytes(fill.memoryOf)}`;
}

function drawChart() {
  const box = $("chart");
  const width = Math.max(240, box.clientWidth);
  const height = 150;
  const [left, right, top, bottom] = [56, 8, 8, 22];
  const points = view.prices.map((step) => [Date.parse(step.at), Number(step.pricePerHour)]);
  if (!points.length) return;
  const end = Math.max(Date.parse(view.now), points[0][0] + 60000);
  const begin = points[0][0];
  const most = Math.max(...points.map(([, price]) => price), 0.0001);
  const scale = niceScale(most);
  const x = (time) => left + ((width - left - right) * (time - begin)) / (end - begin);
  const y = (price) => height - bottom - ((height - top - bottom) * price) / scale.top;
  let line = "";
  points.forEach(([time, price], place) => {
    line += place === 0 ? `M${x(time).toFixed(1)} ${y(price).toFixed(1)}` : `H${x(time).toFixed(1)}V${y(price).toFixed(1)}`;
  });
  line += `H${x(end).toFixed(1)}`;
  const last = points[points.length - 1][1];
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `From ${dollars(points[0][1])} to ${dollars(last)} per hour, at most ${dollars(most)}` });
  for (const value of scale.values) {
    picture.append(svg("line", { class: "rule", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    picture.append(svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, `$${value.toFixed(scale.decimals)}`));
  }
  picture.append(svg("path", { class: "area", d: `${line}V${y(0)}H${x(begin)}Z` }));
  picture.append(svg("path", { class: "line", d: line }));
  const ticks = width > 600 ? 5 : 3;
  for (let tick = 0; tick < ticks; tick += 1) {
    const time = begin + ((end - begin) * tick) / (ticks - 1);
    const anchor = tick === 0 ? "start" : tick === ticks - 1 ? "end" : "middle";
    picture.append(svg("text", { x: x(time), y: height - 5, "text-anchor": anchor }, clock(time, end - begin < 600000)));
  }
  box.replaceChildren(picture);
  $("price-span").textContent = `the last ${age(new Date(begin).toISOString(), new Date(end).toISOString())}, times in UTC`;
}

function niceScale(most) {
  const raw = most / 3;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= raw * 0.999);
  const top = Math.ceil((most * 1.02) / step) * step;
  const values = [];
  for (let value = 0; value <= top * 1.0001; value += step) values.push(value);
  const decimals = Math.max(0, Math.min(5, Math.ceil(-Math.log10(step) + (String(step / power).includes(".") ? 1 : 0))));
  return { top, values, decimals };
}

const boxes = new Map();

function drawNodes() {
  const wanted = $("find-name").value.trim().toLowerCase();
  const matches = (node) => !wanted || [node.name, node.pool, node.instanceType, node.zone, node.capacityType, node.state, node.refusal && node.refusal.reason].some((text) => text && text.toLowerCase().includes(wanted));
  const shown = view.nodes.filter(matches);
  const note = $("nodes-note");
  const left = view.totals.nodes - view.nodes.length;
  note.hidden = left === 0 && !wanted;
  note.textContent = [
    left > 0 ? `${count(view.nodes.length, "node")} of ${view.totals.nodes.toLocaleString("en")} are drawn: those that come or go, then the emptiest. The totals and NodePools count all.` : "",
    wanted ? `${count(shown.length, "node")} match the filter.` : "",
  ].filter(Boolean).join(" ");
  const names = [...new Set(shown.map((node) => node.pool || ""))].sort();
  const parts = [];
  for (const pool of names) {
    const own = shown.filter((node) => (node.pool || "") === pool).sort((a, b) => (a.name < b.name ? -1 : 1));
    parts.push(make("div", "pool-name", pool || "without a NodePool", make("span", "", count(own.length, "node"))));
    for (const node of own) parts.push(boxOf(node));
  }
  const present = new Set(view.nodes.map((node) => node.name));
  for (const name of boxes.keys()) if (!present.has(name)) boxes.delete(name);
  replaceKeepingFocus($("grid"), parts);
}

/** Moves what is already there instead of drawing it anew, so that focus and animations stay. */
function replaceKeepingFocus(parent, parts) {
  const focused = document.activeElement;
  let place = parent.firstChild;
  for (const part of parts) {
    if (part === place) { place = place.nextSibling; continue; }
    parent.insertBefore(part, place);
  }
  while (place) { const next = place.nextSibling; place.remove(); place = next; }
  if (focused && parts.includes(focused) && document.activeElement !== focused) focused.focus();
}

/** Names of nodes differ at their ends, so that these are never cut off. */
const TAIL = 10;
const STATE_WORDS = { going: "going", coming: "coming", notReady: "not ready", notManaged: "not Kerf's" };

function boxOf(node) {
  const text = JSON.stringify(node);
  const before = boxes.get(node.name);
  if (before && before.text === text) return before.box;
  const box = before ? before.box : make("button", "node");
  if (!before) {
    box.type = "button";
    box.addEventListener("click", () => openDetail(node.name));
  }
  box.className = `node ${node.state}`;
  const why = STATE_WORDS[node.state] || (node.refusal ? node.refusal.reason : "");
  box.replaceChildren(
    make("span", "name", null, make("span", "start", node.name.slice(0, -TAIL)), make("span", "", node.name.slice(-TAIL))),
    make("span", "sub", null, make("span", "type", [node.instanceType, node.capacityType].filter(Boolean).join(" · ")), make("span", "", node.pricePerHour === undefined ? "" : dollars(node.pricePerHour))),
    bar(node, "cpu"), bar(node, "memory"),
    make("span", "sub", null, make("span", "why", why), make("span", "", count(node.podCount, "pod"))),
  );
  box.setAttribute("aria-label", `Node ${node.name}, ${node.instanceType || "unknown type"}, CPU ${percent(node.fill.cpu, node.fill.cpuOf)}, memory ${percent(node.fill.memory, node.fill.memoryOf)}, ${count(node.podCount, "pod")}, ${STATE_WORDS[node.state] || (node.refusal ? `stays because of ${node.refusal.reason}` : "at rest")}`);
  box.title = node.refusal ? `${node.name}\n${node.refusal.message}` : node.name;
  boxes.set(node.name, { box, text });
  return box;
}

/** One segment for each pod that is named, and one for the rest. */
function bar(node, resource) {
  const total = node.fill[`${resource}Of`];
  const element = make("span", "bar");
  let left = node.fill[resource];
  const segment = (amount, stays) => {
    if (amount <= 0 || total <= 0) return;
    const part = make("i", stays ? "stays" : "");
    part.style.width = `${Math.min(100, (100 * amount) / total)}%`;
    element.append(part);
  };
  for (const pod of node.pods) { segment(pod[resource], pod.stays); left -= pod[resource]; }
  segment(left, false);
  return element;
}

const ACTS = new Set(["Disrupting", "Created", "DisruptionTerminating", "DisruptionLaunching", "Abandoned"]);
let drawnLog = "";

function drawLog() {
  const wanted = $("find-log").value.trim().toLowerCase();
  const entries = view.log.filter((entry) => !wanted || [entry.reason, entry.message, entry.name, entry.namespace, entry.kind].some((text) => text && text.toLowerCase().includes(wanted)));
  const text = JSON.stringify(entries);
  if (text === drawnLog) return;
  drawnLog = text;
  $("log-empty").hidden = entries.length > 0;
  $("log-empty").textContent = wanted ? "No decision matches the filter." : "Nothing was decided since this replica started.";
  $("log").replaceChildren(...entries.map((entry) => {
    const time = make("time", "", clock(entry.at));
    time.dateTime = entry.at;
    const object = `${entry.kind} ${entry.namespace ? `${entry.namespace}/` : ""}${entry.name}${entry.count > 1 ? ` and ${count(entry.count - 1, "other")}` : ""}`;
    const classes = `reason${entry.warning ? " warning" : ACTS.has(entry.reason) ? " act" : ""}`;
    return make("li", "", null, time, make("div", "", null,
      make("p", "", null, make("span", classes, entry.reason), entry.message),
      make("span", "object", object)));
  }));
}

function drawRefusals(standby) {
  $("refused-empty").hidden = view.refusals.length > 0;
  $("refused-empty").textContent = standby ? "A standby refuses nothing." : "Nothing is refused.";
  const most = Math.max(1, ...view.refusals.map((one) => one.count));
  $("refused").replaceChildren(...view.refusals.map((one) => {
    const part = make("i", one.of);
    part.style.width = `${(100 * one.count) / most}%`;
    const what = one.of === "pods" ? `${count(one.count, "pod")} without a place` : `${count(one.count, "node")} not disrupted`;
    const others = one.count > one.names.length ? ` and ${one.count - one.names.length} more` : "";
    return make("li", "", null,
      make("div", "row", null, make("span", "", one.reason), make("span", "dim", what)),
      make("div", "track", null, part),
      make("p", "", sentence(one.message)),
      make("p", "", one.names.join(", ") + others));
  }));
}

function drawPools() {
  $("pools").replaceChildren(...view.pools.map((pool) => {
    const facts = [
      ["Consolidation", `${pool.policy} after ${pool.consolidateAfter}`],
      ["Controls", `utilization ≤ ${pool.utilizationThreshold}, price factor ${pool.priceImprovementFactor}, savings ≥ ${pool.savingsThreshold}, grace period ${pool.gracePeriod}`],
      ...pool.budgets.map((budget, place) => [place === 0 ? "Budgets" : "", budgetText(budget)]),
      ["May go now", pool.allowances.map((one) => `${one.reason} ${one.allowed === undefined ? "any number" : one.allowed}${one.disrupting ? ` (${one.disrupting} going)` : ""}`).join(", ")],
    ];
    if (pool.replicas !== undefined) facts.unshift(["Static", `keeps ${count(pool.replicas, "node")}`]);
    const limits = Object.entries(pool.limits);
    if (limits.length) facts.push(["Limits", limits.map(([name, amount]) => `${name} ${amount}`).join(", ")]);
    const { fill } = pool;
    const whole = { fill, pods: [] };
    const list = make("dl", "");
    for (const [name, value] of facts) list.append(make("dt", "", name), make("dd", "", value));
    const parts = [
      make("h3", "", pool.name),
      make("p", "dim", `${count(pool.nodes, "node")}, ${dollars(pool.pricePerHour)}/h, CPU ${percent(fill.cpu, fill.cpuOf)}, memory ${percent(fill.memory, fill.memoryOf)}`),
    ];
    if (pool.idle) parts.push(make("p", "idle", `It launches nothing: ${pool.idle}`));
    return make("article", "pool", null, ...parts, bar(whole, "cpu"), bar(whole, "memory"), list);
  }));
}

function budgetText(budget) {
  const when = budget.schedule ? `, ${budget.schedule} for ${budget.duration || "–"}` : "";
  const what = budget.reasons ? ` for ${budget.reasons.join(", ")}` : "";
  const state = budget.error ? `, allows nothing: ${budget.error}` : budget.active ? "" : ", not active now";
  return `${budget.nodes} of the nodes${what}${when}${state}`;
}

// One node

async function openDetail(name) {
  const dialog = $("detail");
  const node = view.nodes.find((one) => one.name === name);
  $("detail-name").textContent = `Node ${name}`;
  const facts = !node ? [] : [
    ["NodePool", node.pool || "none"],
    ["Type", [node.instanceType, node.capacityType, node.zone].filter(Boolean).join(" · ") || "unknown"],
    ["Price", node.pricePerHour === undefined ? "unknown" : `${dollars(node.pricePerHour)}/h`],
    ["CPU", `${cores(node.fill.cpu)} of ${cores(node.fill.cpuOf)} (${percent(node.fill.cpu, node.fill.cpuOf)})`],
    ["Memory", `${bytes(node.fill.memory)} of ${bytes(node.fill.memoryOf)} (${percent(node.fill.memory, node.fill.memoryOf)})`],
    ...(node.created ? [["Age", age(node.created, view.now)]] : []),
    ...(node.refusal ? [["Stays because", `${node.refusal.message} (${node.refusal.reason}${node.refusal.method ? `, ${node.refusal.method}` : ""}, ${clock(node.refusal.at)} UTC)`]] : []),
  ];
  $("detail-facts").replaceChildren(...facts.flatMap(([term, value]) => [make("dt", "", term), make("dd", "", value)]));
  const pods = node ? node.pods : [];
  const items = pods.map((pod) => make("li", "", null, make("span", "pod-name", pod.name), make("span", "amount", `${cores(pod.cpu)} CPU, ${bytes(pod.memory)}`)));
  if (node && node.podCount > pods.length) items.push(make("li", "dim", `and ${count(node.podCount - pods.length, "more pod")}`));
  if (!items.length) items.push(make("li", "dim", "none"));
  $("detail-pods").replaceChildren(...items);
  $("detail-explain").textContent = "Asking …";
  if (!dialog.open) dialog.showModal();
  try {
    const answer = await fetch(`api/nodes/${encodeURIComponent(name)}/explain`, { cache: "no-store" });
    $("detail-explain").textContent = await answer.text();
  } catch (error) {
    $("detail-explain").textContent = "No answer from the operator.";
  }
}

$("detail-close").addEventListener("click", () => $("detail").close());
$("detail").addEventListener("click", (event) => { if (event.target === $("detail")) $("detail").close(); });
for (const [form, field, redraw] of [["find", "find-name", drawNodes], ["find-log-form", "find-log", drawLog]]) {
  $(form).addEventListener("submit", (event) => event.preventDefault());
  $(field).addEventListener("input", () => { if (view && !view.nothing) redraw(); });
}
let resized = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(() => { if (view && !view.nothing) drawChart(); }); });
ask();
