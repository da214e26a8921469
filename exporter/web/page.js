
"use strict";
(() => {
  const EVERY = 5000, PATIENCE = 4000;
  const stale = document.getElementById("stale");
  const build = document.querySelector("meta[name=build]").content;
  let fresh = Date.now(), skew = 0, failed = 0, busy = false;

  const span = (seconds) => {
    const left = Math.max(0, Math.floor(seconds));
    const s = left % 60, m = Math.floor(left / 60) % 60, h = Math.floor(left / 3600) % 24, d = Math.floor(left / 86400);
    if (d) return `${d} ${d === 1 ? "day" : "days"} ${h} h`;
    if (h) return `${h} h ${m} min`;
    return m ? `${m} min ${s} s` : `${s} s`;
  };

  const say = {
    in: (gone) => (gone < 0 ? `in ${span(-gone)}` : "any moment now"),
    for: (gone) => `for ${span(gone)}`,
    ago: (gone) => `${span(gone)} ago`,
  };

  const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };

  // Counts follow the exporter's clock, not the browser's.
  const setClock = () => { skew = Date.now() - Date.parse(document.getElementById("main").dataset.now); };

  const localTimes = () => {
    for (const node of document.querySelectorAll("time[data-local]")) {
      const at = new Date(node.dateTime);
      if (at.getTimezoneOffset() === 0 || node.dataset.local) continue;
      node.dataset.local = "done";
      const day = at.getDate() === at.getUTCDate() ? {} : { weekday: "short" };
      const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...day };
      node.append(` (${at.toLocaleString("en-GB", options)} your time)`);
    }
  };

  const tick = () => {
    const now = Date.now() - skew;
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

  const show = (page) => {
    const main = page.getElementById("main");
    if (!main) throw new Error("not this page");
    if (page.querySelector("meta[name=build]").content !== build) { location.reload(); return; }
    fresh = Date.now();
    failed = 0;
    stale.hidden = true;
    document.documentElement.classList.remove("stale");
    document.title = page.title;
    document.querySelector("link[rel=icon]").href = page.querySelector("link[rel=icon]").getAttribute("href");
    // While text is selected, an event ID to be copied, the content stays; a later refresh replaces it.
    if (!String(getSelection())) {
      const focused = document.activeElement?.closest("main a")?.getAttribute("href");
      document.getElementById("main").replaceWith(document.adoptNode(main));
      if (focused) main.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      setClock();
    }
    localTimes();
    tick();
  };

  const refresh = async () => {
    if (busy) return;
    busy = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) throw new Error(`the exporter returned status ${answer.status}`);
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch (error) {
      blame(error.message.startsWith("the exporter") ? error.message : "the exporter is not responding");
    } finally {
      busy = false;
    }
  };

  setClock();
  localTimes();
  tick();
  setInterval(tick, 1000);
  setInterval(refresh, EVERY);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
})();
