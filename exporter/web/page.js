
"use strict";
(() => {
  const EVERY = 5000, EVERY_HIDDEN = 60000, PATIENCE = 4000;
  const stale = document.getElementById("stale");
  const build = document.querySelector("meta[name=build]").content;
  let fresh = Date.now(), asked = 0, skew = 0, failed = "", busy = false, tag = "";

  const span = (seconds) => {
    const two = (all, size, unit, small) =>
      `${Math.floor(all / size)} ${unit}` + (all % size ? ` ${all % size} ${small}` : "");
    const s = Math.max(0, Math.round(seconds)), m = Math.round(s / 60), h = Math.round(s / 3600);
    if (s < 60) return `${s} s`;
    if (s < 3600) return two(s, 60, "min", "s");
    return m < 1440 ? two(m, 60, "h", "min") : two(h, 24, h < 48 ? "day" : "days", "h");
  };

  const say = {
    in: (gone) => (gone < 0 ? `in ${span(-gone)}` : "any moment now"),
    for: (gone) => `for ${span(gone)}`,
    ago: (gone) => `${span(gone)} ago`,
  };

  const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };

  // Counts follow the exporter's clock, which the response tells in whole seconds.
  const setClock = (date) => {
    const found = Date.now() - Date.parse(date);
    if (Math.abs(found - skew) > 2000) skew = found;
  };

  // In a demo, time passes faster than the clock.
  const present = () => {
    const { began, speed } = document.getElementById("main").dataset;
    const now = Date.now() - skew, start = Date.parse(began);
    return began ? start + (now - start) * speed : now;
  };

  const localTimes = () => {
    for (const node of document.querySelectorAll("time[data-local]")) {
      const at = new Date(node.dateTime);
      if (at.getTimezoneOffset() === 0 || node.dataset.local) continue;
      node.dataset.local = "done";
      const day = at.getDate() === at.getUTCDate() ? {} : { weekday: "short" };
      const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short", ...day };
      node.append(` (${at.toLocaleString("en-GB", options)}, your time)`);
    }
  };

  const tick = () => {
    const now = present();
    for (const node of document.querySelectorAll("time[data-count]")) {
      write(node, say[node.dataset.count]((now - Date.parse(node.dateTime)) / 1000));
    }
    if (failed) {
      const since = new Date(fresh).toLocaleTimeString("en-GB");
      write(stale, `No update since ${since} (${span((Date.now() - fresh) / 1000)} ago): ${failed}. ` +
        "Events for this VM may go unnoticed.");
    }
  };

  const blame = (reason) => {
    failed = reason;
    stale.hidden = false;
    document.documentElement.classList.add("stale");
    document.title = "STALE – " + document.title.replace(/^STALE – /, "");
    tick();
  };

  const settle = () => {
    fresh = Date.now();
    failed = "";
    stale.hidden = true;
    document.documentElement.classList.remove("stale");
    document.title = document.title.replace(/^STALE – /, "");
    tick();
  };

  // Returns whether the content was replaced. While text is selected, an event ID to be copied, it stays.
  const show = (page) => {
    const main = page.getElementById("main");
    if (!main) throw new Error("not this page");
    if (page.querySelector("meta[name=build]").content !== build) { location.reload(); return false; }
    document.title = page.title;
    document.querySelector("link[rel=icon]").href = page.querySelector("link[rel=icon]").getAttribute("href");
    if (String(getSelection())) return false;
    const focused = document.activeElement?.closest("main a")?.getAttribute("href");
    const expanded = document.activeElement?.closest("main summary")?.parentNode.dataset.id;
    const opened = [...document.querySelectorAll("main details[open]")].map((one) => one.dataset.id);
    document.getElementById("main").replaceWith(document.adoptNode(main));
    if (focused) main.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    for (const one of main.querySelectorAll("details")) {
      one.open = opened.includes(one.dataset.id);
      if (one.dataset.id === expanded) one.firstElementChild.focus({ preventScroll: true });
    }
    localTimes();
    return true;
  };

  const refresh = async () => {
    // The title and icon of a hidden tab may still be visible.
    if (busy || (document.hidden && Date.now() - asked < EVERY_HIDDEN)) return;
    busy = true;
    asked = Date.now();
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { cache: "no-store", headers, signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok && answer.status !== 304) throw new Error(`the exporter returned status ${answer.status}`);
      setClock(answer.headers.get("date"));
      if (answer.ok && show(new DOMParser().parseFromString(await answer.text(), "text/html"))) {
        tag = answer.headers.get("etag") ?? "";
      }
      settle();
    } catch (error) {
      blame(error.message.startsWith("the exporter") ? error.message : "the exporter is not responding");
    } finally {
      busy = false;
    }
  };

  localTimes();
  tick();
  refresh();
  setInterval(tick, 1000);
  setInterval(refresh, EVERY);
  document.addEventListener("visibilitychange", refresh);
})();
