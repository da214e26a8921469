
"use strict";
(() => {
  const EVERY = 1000, PATIENCE = 4000;
  const find = (id) => document.getElementById(id);
  let skew = 0, speed = 1, pace = 1, busy = false, shown = "";

  // Everything is inserted as text, so that no response can become markup.
  const make = (tag, className, ...children) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children);
    return node;
  };
  const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };

  const span = (seconds) => {
    const left = Math.max(0, Math.round(seconds));
    const s = left % 60, m = Math.floor(left / 60) % 60, h = Math.floor(left / 3600) % 24, d = Math.floor(left / 86400);
    if (d) return `${d} ${d === 1 ? "day" : "days"} ${h} h`;
    if (h) return `${h} h ${m} min`;
    return m ? `${m} min ${s} s` : `${s} s`;
  };
  const until = (at) => {
    const left = pace * (Date.parse(at) - (Date.now() - skew)) / 1000;
    return speed === 1 ? span(left) : `${span(left)} (${span(left / speed)} real time)`;
  };

  const blame = (message) => {
    write(find("trouble"), message || "");
    find("trouble").hidden = !message;
  };
  const ask = async (path, method, body) => {
    const options = { method: method || "GET", cache: "no-store", signal: AbortSignal.timeout(PATIENCE) };
    if (body !== undefined) {
      options.body = JSON.stringify(body);
      options.headers = { "content-type": "application/json" };
    }
    const answer = await fetch(`api/v1/${path}`, options);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  };
  const act = async (button, said, path, method, body) => {
    button.disabled = true;
    try {
      await ask(path, method, body);
      write(find("said"), `${clock(Date.now() - skew)}: ${said}`);
      await refresh();
    } catch (error) {
      blame(error.message);
    } finally {
      button.disabled = false;
    }
  };
  const button = (text, className, said, path, method, body) => {
    const node = make("button", className, text);
    node.type = "button";
    node.addEventListener("click", () => act(node, said, path, method, body));
    return node;
  };

  const card = (event) => {
    const acts = make("div", "acts"), name = `${event.type} ${event.id}`;
    if (event.status === "Scheduled") acts.append(button("Approve", "", `${name} approved; it starts now.`, "approve", "POST", { ids: [event.id] }));
    acts.append(button("Cancel", "plain", `${name} cancelled.`, `events/${encodeURIComponent(event.id)}`, "DELETE"));
    const when = make("span", "when");
    when.dataset.to = event.status === "Started" ? event.ends : event.starts;
    when.dataset.word = event.status === "Started" ? "ends in" : "starts in";
    const bar = make("progress");
    bar.max = 1;
    bar.dataset.from = event.status === "Started" ? event.starts : event.appears;
    bar.dataset.to = when.dataset.to;
    bar.setAttribute("aria-label", when.dataset.word);
    const seconds = event.duration_in_seconds;
    const lasts = seconds < 0 ? "unknown duration" : `${seconds} s interruption`;
    return make("article", `event ${event.status}`,
      make("h3", "", event.type, make("span", "badge", event.status), when), acts, bar,
      make("p", "more", `${event.resources.join(", ")} · ${event.source} · ${lasts} · ${event.title}`,
        make("br"), make("code", "", event.id)));
  };

  const showEvents = (state) => {
    const key = JSON.stringify([state.events, state.event_count]);
    if (key === shown) return;
    shown = key;
    const cards = state.events.map(card);
    if (!cards.length) cards.push(make("p", "nothing", "No events. Start a scenario below."));
    const hidden = state.event_count - state.events.length;
    if (hidden > 0) cards.push(make("p", "nothing", `${hidden} more not shown`));
    find("events").replaceChildren(...cards);
  };

  const showComing = (state) => {
    const coming = state.coming.map((event) => `${event.type} of ${event.resources.join(", ")} in ${until(event.appears)}`);
    if (state.next) coming.push(`the scenario “${state.next.title}” in ${until(state.next.at)}`);
    write(find("coming"), coming.length ? `Next: ${coming.join("; ")}.` : "");
  };

  const showFault = (fault) => {
    const details = fault && [
      fault.mode,
      fault.mode === "error" ? `with status ${fault.status}` : "",
      fault.mode === "delay" ? `of ${fault.seconds} s` : "",
      fault.mode === "drip" ? `with one byte every ${fault.seconds} s` : "",
      fault.method ? `for ${fault.method}` : "",
      fault.endpoint ? `at ${fault.endpoint}` : "",
      fault.count ? `for ${fault.count} more ${fault.count === 1 ? "request" : "requests"}` : "until removed",
    ].filter(Boolean).join(" ");
    write(document.querySelector("#current span"), fault ? `Active: ${details}.` : "No active fault.");
    find("current").classList.toggle("on", Boolean(fault));
    find("remove-fault").hidden = !fault;
  };

  const clock = (at) => new Date(at).toISOString().slice(11, 19) + " UTC";

  const showFacts = (state) => {
    const facts = [
      ["Simulated VM", state.vm_name],
      ["Speed", `${state.speed}×`],
      ["Service", { off: "off until a request", empty: "on, still empty", on: "on" }[state.service]],
      ["Incarnation", state.document_incarnation],
      ["Polls", state.polls],
      ["Last poll", state.last_poll ? clock(state.last_poll) : "never"],
    ];
    const list = find("facts");
    if (list.children.length !== facts.length) {
      list.replaceChildren(...facts.map(([name]) => make("div", "", make("dt", "", name), make("dd"))));
    }
    facts.forEach(([, value], index) => write(list.children[index].lastChild, String(value)));
  };

  const show = (state) => {
    skew = Date.now() - Date.parse(state.now);
    speed = state.speed;
    pace = state.pace;
    write(find("count"), String(state.event_count));
    find("clear").hidden = !state.event_count && !state.coming.length;
    showFacts(state);
    showEvents(state);
    showComing(state);
    showFault(state.fault);
    const approvals = state.approvals.map((one) => `${clock(one.at)}: ${one.event_id}`).reverse();
    const list = find("approvals");
    if (approvals.join() !== [...list.children].map((node) => node.textContent).join()) {
      list.replaceChildren(...approvals.map((text) => make("li", "", text)));
    }
    tick();
  };

  const tick = () => {
    const now = Date.now() - skew;
    for (const node of document.querySelectorAll(".when")) write(node, `${node.dataset.word} ${until(node.dataset.to)}`);
    for (const bar of document.querySelectorAll("progress")) {
      const from = Date.parse(bar.dataset.from), to = Date.parse(bar.dataset.to);
      bar.value = to > from ? Math.min(1, (now - from) / (to - from)) : 1;
    }
  };

  const refresh = async () => {
    if (busy) return;
    busy = true;
    try {
      show(await ask("state"));
      blame("");
    } catch {
      blame("The simulator is not responding.");
    } finally {
      busy = false;
    }
  };

  const form = find("fault");
  const fitForm = () => {
    for (const label of form.querySelectorAll("[data-for]")) {
      label.hidden = !label.dataset.for.split(" ").includes(form.elements.mode.value);
    }
  };
  form.addEventListener("change", fitForm);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const { mode, status, seconds, count, endpoint } = form.elements;
    act(event.submitter, "Fault injected.", "faults", "PUT", {
      mode: mode.value, status: Number(status.value), seconds: Number(seconds.value),
      count: count.value ? Number(count.value) : null, endpoint: endpoint.value || null,
    });
  });
  find("switch").addEventListener("submit", (event) => {
    event.preventDefault();
    act(event.submitter, "Service switched off; the next request switches it on.", "switch-off", "POST", { empty_seconds: 60 * Number(event.target.elements.minutes.value) });
  });
  find("remove-fault").addEventListener("click", (event) => act(event.target, "Fault removed.", "faults", "DELETE"));
  find("clear").addEventListener("click", (event) => act(event.target, "All events cancelled.", "events", "DELETE"));
  find("stop").addEventListener("click", (event) => {
    act(event.target, "Everything stopped: no events, no scenarios to come, no fault.", "stop", "POST", {});
  });

  const showScenarios = async () => {
    const scenarios = await ask("scenarios");
    find("scenarios").replaceChildren(...scenarios.map((one) => {
      const start = button("Start", "", `Started “${one.title}”.`, `scenarios/${encodeURIComponent(one.name)}/start`, "POST", {});
      start.setAttribute("aria-label", `Start: ${one.title}`);
      return make("article", "scenario", make("h3", "", one.title), make("p", "", one.description),
        make("div", "", make("small", "", make("code", "", one.name)), start));
    }));
  };

  const here = new URL(".", location.href).href.replace(/\/$/, "");
  write(find("use"), `curl -H Metadata:true '${here}/metadata/scheduledevents?api-version=2020-07-01'\n` +
    `azure-scheduled-events-exporter run --imds.endpoint ${here}`);
  fitForm();
  showScenarios().catch((error) => blame(error.message));
  refresh();
  setInterval(tick, 500);
  setInterval(() => { if (!document.hidden) refresh(); }, EVERY);
})();
