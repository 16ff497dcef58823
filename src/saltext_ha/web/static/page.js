"use strict";
// Shows what /events, or else /status.json, says. Everything is put in as text, never as HTML.
(() => {
  const OLD = 15; // seconds after which data is called old, and nothing counts as well any more
  const POLL = 5;
  const MINIONS = 30; // with many it is work for all masters
  const UNKNOWN_ONLINE = "unknown which are online";
  const $ = (id) => document.getElementById(id);
  let status = null, heard = null, age = 0, trouble = "";

  // Seconds since *then*. One of the clocks may be set back, the other may stand still while the
  // computer sleeps.
  const now = () => [performance.now(), Date.now()];
  const since = (then) => Math.max(...now().map((value, clock) => value - then[clock])) / 1000;

  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    if (text !== undefined && text !== null) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  // What is as it was stays where it is, and with it selected text and the focus of the keyboard.
  const renew = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (fresh.firstChild && old.cloneNode().isEqualNode(fresh.cloneNode())) fill(old, fresh.childNodes);
    else old.replaceWith(fresh);
  };
  const fill = (parent, children) => {
    const all = document.createDocumentFragment(), before = [...parent.childNodes];
    all.append(...children);
    const after = [...all.childNodes];
    before.slice(after.length).forEach((old) => old.remove());
    after.forEach((fresh, n) => before[n] ? renew(before[n], fresh) : parent.append(fresh));
  };
  const say = (id, text) => fill($(id), text ? [text] : []);
  const number = (value) => (typeof value === "number" ? value.toLocaleString("en") : "?");
  const seconds = (value) => {
    if (typeof value !== "number") return "?";
    if (value < 120) return `${Math.round(value)} s`;
    if (value < 7200) return `${Math.round(value / 60)} min`;
    return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} d`;
  };
  const time = (unix) => {
    const date = new Date(unix * 1000);
    if (!unix || Number.isNaN(date.getTime())) return make("span", "?");
    const pad = (n) => String(n).padStart(2, "0");
    const text = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ` +
      `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
    return make("time", text, { datetime: date.toISOString() });
  };
  const badge = (kind, text) => make("span", text, { class: `badge ${kind}` });

  // -- the parts of the page

  const serves = (row) => {
    const health = row.health || {};
    if (row.state !== "running") return badge("unknown", "? unknown");
    if (health.healthy === false) return badge("bad", "✗ no");
    if (health.draining) return badge("unknown", "↷ drained");
    if (health.healthy === true) return health.ready ? badge("ok", "✓ yes") : badge("unknown", "… not yet");
    return badge("unknown", "? unknown");
  };

  const api = (row) => {
    const health = row.health || {}, span = make("span");
    if (!health.url) return make("span", row.state === "running" && health.url === "" ? "none" : "?");
    const check = (health.checks || []).find((each) => each.name === "salt-api");
    const known = row.state === "running" && check && check.ok !== null;
    const [kind, text] = !known ? ["unknown", "?"] : check.ok ? ["ok", "✓"] : ["bad", "✗"];
    span.append(badge(kind, text), " ", make("code", health.url));
    return span;
  };

  const masterRow = (row) => {
    const tr = make("tr", null, { "data-master": row.name });
    tr.append(make("th", row.name + (row.self ? " (this one)" : ""), { scope: "row" }));
    const cell = (label, content, kind) => {
      const td = make("td", null, kind ? { "data-label": label, class: kind } : { "data-label": label });
      td.append(content);
      tr.append(td);
    };
    cell("Serves", serves(row));
    cell("Salt", row.salt || "?");
    for (const state of ["accepted", "pending", "rejected", "denied"]) {
      cell(state[0].toUpperCase() + state.slice(1), number(row[state]), "n");
    }
    cell("Behind", row.behind === 0 ? "–" : number(row.behind), "n");
    cell("Bound", number(row.bound), "n");
    cell("salt-api", api(row));
    cell("Seen", row.self ? "here" : row.seen === null ? "never" : `${seconds(row.seen)} ago`);
    const key = row.master_key;
    cell("Master key", key ? make("code", `${key.slice(0, 11)}…`, { title: key }) : "?");
    return tr;
  };

  const reasons = (...kinds) => (status.reasons || []).filter((reason) => kinds.includes(reason.kind));

  const masters = () => {
    fill($("rows"), status.masters.map(masterRow));
    const notes = status.masters.flatMap((row) => {
      const note = row.note || "";
      const why = reasons("serves", "ready", "behind").filter((reason) => reason.about === row.name)
        .filter((reason) => reason.kind !== "behind" || reason.states.includes("unknown"))
        .map((reason) => reason.text).filter((text) => !note.includes(text));
      const said = [note, ...why].filter(Boolean);
      if (!said.length) return [];
      const li = make("li");
      li.append(make("strong", row.name), `: ${said.join("; ")}`);
      return [li];
    });
    fill($("notes"), [...notes, ...(status.notes || []).map((note) => make("li", note))]);
    const own = status.masters.find((row) => row.self);
    const checks = (own && own.health && own.health.checks) || [];
    $("checks").hidden = !checks.length;
    fill($("asked"), checks.map((check) => {
      const li = make("li");
      const [kind, sign] = check.ok ? ["ok", "✓"] : check.ok === null ? ["unknown", "?"] : ["bad", "✗"];
      li.append(badge(kind, sign), ` ${check.name}: ` +
        (check.ok ? `${Math.round(check.seconds * 1000)} ms` : check.problem));
      return li;
    }));
  };

  const attention = () => {
    const conflicts = status.conflicts || [], held = status.held || [];
    $("attention").hidden = !conflicts.length && !held.length;
    const shown = [];
    if (conflicts.length) {
      shown.push(make("h3", `${number(status.conflict_count)} in conflict: different keys accepted for one id`));
      const list = make("ul");
      for (const conflict of conflicts) {
        const li = make("li");
        li.append(make("strong", conflict.id), ": ", Object.entries(conflict.keys)
          .map(([master, key]) => `${master} ${key || "none"}`).join(" · "), " → ");
        const keys = new Set(Object.values(conflict.keys)
          .flatMap((key) => (key || "").split(", ")).map((key) => key.split(" ").pop()));
        keys.delete("");
        li.append(make("code", `salt-run ha.resolve ${conflict.id} ${[...keys].join(" or ")}`));
        list.append(li);
      }
      shown.push(list);
      if (status.conflict_count > conflicts.length) {
        shown.push(make("p", `and ${number(status.conflict_count - conflicts.length)} more`));
      }
    }
    fill($("conflicts"), shown);
    fill($("held"), held.map((entry) => {
      const li = make("li", `${entry.master}: ${number(entry.keys)} held back (keys that vanished, or revoked ones that came back) → bring its key folder back; or there `);
      li.append(make("code", "salt-run ha.refill"), ", or, if it was meant, ", make("code", "salt-run ha.release"));
      return li;
    }));
  };

  const value = (given) => {
    if (given === null || given === undefined) return "absent";
    if (typeof given !== "object") return String(given);
    if (given.absent) return "absent";
    return given.unknown ? `unknown (${given.unknown})` : JSON.stringify(given);
  };

  const drift = () => {
    const found = status.consistency, sections = Object.entries(found.sections);
    const differing = sections.filter(([, section]) => section.status === "differ");
    const unknown = sections.filter(([, section]) => section.status === "unknown");
    const text = found.status === "same" ? "yes" : found.status === "differ"
      ? `no: ${differing.map(([name, section]) => `${name} ${number(section.count)}`).join(", ")}`
      : "unknown";
    const kind = found.status === "same" ? "ok" : found.status === "differ" ? "bad" : "unknown";
    const line = [badge(kind, text)];
    if (found.at) line.push(" compared ", time(found.at));
    else line.push(" not compared yet");
    const why = reasons("comparison").filter((reason) => reason.states.includes("unknown"));
    if (found.at && why.length) line.push(`; ${why.map((reason) => reason.text).join("; ")}`);
    else if (found.stale) line.push(`; ${found.stale}`);
    fill($("same"), line);
    const open = new Set([...document.querySelectorAll("#drift details[open]")].map((d) => d.dataset.name));
    const blocks = differing.map(([name, section]) => {
      const details = make("details", null, { "data-name": name });
      details.open = open.has(name);
      details.append(make("summary", `${name}: ${number(section.count)} differ`));
      const list = make("ul");
      for (const difference of section.differences) {
        const li = make("li");
        li.append(make("code", difference.path), " ", Object.entries(difference.values || {})
          .map(([master, given]) => `${master}: ${value(given)}`).join(" · "));
        if (difference.fix) li.append(make("br"), `→ ${difference.fix}`);
        list.append(li);
      }
      details.append(list);
      if (section.left_out) {
        details.append(make("p", `${number(section.left_out)} more: salt-run ha.check_consistency`));
      }
      return details;
    });
    for (const [name, section] of unknown) {
      const then = found.stale && section.count ? `, ${number(section.count)} differed then` : "";
      blocks.push(make("p", `${name}: unknown${then}`));
    }
    for (const [name, why] of Object.entries(found.unknown || {})) blocks.push(make("p", `${name}: unknown, ${why}`));
    fill($("drift"), blocks);
  };

  const list = (id, entries, line, none) => {
    fill($(id), entries.length ? entries.map((entry) => {
      const li = make("li");
      li.append(time(entry.at), ` ${line(entry)}`);
      return li;
    }) : [make("li", none)]);
  };

  const show = () => {
    say("group", status.group);
    say("self", status.master);
    const running = status.masters.filter((row) => row.state === "running").length;
    say("summary", `${running} of ${status.masters.length} masters answer · sync ` +
      `${status.mode} · tolerates the loss of ${status.tolerates}` +
      (status.leader.store ? ` · ${status.leader.leader || "nobody"} leads` : "") +
      (status.leader.why ? ` (${status.leader.why})` : ""));
    masters();
    attention();
    drift();
    $("search").hidden = false;
    if (!asked) find();
    const counts = status.masters.map((row) => `${row.name} ${number(row.bound)}`);
    say("bound", `Bound: ${counts.join(" · ")}`);
    list("changes", status.changes, (c) => `${c.id}: ${c.what} on ${c.on || "?"}` +
      (c.by ? ` by ${c.by}` : "") + (c.from && c.from !== c.on ? `, came from ${c.from}` : "") + (c.why ? ` (${c.why})` : ""), "none yet");
    list("failovers", status.failovers.last, (f) => `${f.id}: ${f.source} → ${f.target} (${f.why})`,
      "none heard of since this engine started");
  };

  // -- how old it is, and what may be said of it then

  const mood = () => {
    const past = heard ? age + since(heard) : Infinity;
    const old = past > OLD;
    say("age", heard ? `as of ${seconds(past)} ago` : "nothing heard yet");
    document.body.classList.toggle("old", old && Boolean(status));
    if (old && asked) say("online", UNKNOWN_ONLINE);
    const reason = trouble || "the engine of this master does not answer";
    const hidden = !(old && (status || trouble));
    if ($("old").hidden !== hidden) $("old").hidden = hidden;
    if (!hidden) {
      // Apart: a screen reader says the reason when it changes, and not how old it is every second.
      say("past", status ? `This is ${seconds(past)} old:` : "Nothing is known:");
      say("why", `${reason}.`);
    }
    const state = old || !status ? "unknown" : status.state;
    const kind = state === "ok" ? "ok" : state === "degraded" ? "bad" : "unknown";
    say("state", state);
    $("state").className = `badge ${kind}`;
    document.title = `${state === "ok" ? "" : `${state}: `}Salt masters`;
    document.body.dataset.state = state;
  };

  const take = (data, itsAge) => {
    const back = document.body.classList.contains("old");
    [status, age, heard, trouble] = [data, itsAge, now(), ""];
    show();
    mood();
    if (back) find();
  };

  // -- where it comes from

  const ask = async (path, options) => {
    // From the origin: if the page was opened with a token in its URL, fetch refuses a relative one.
    const answer = await fetch(new URL(path, location.origin + location.pathname), options);
    if (answer.ok) return answer;
    const said = (await answer.text()).trim() || `HTTP ${answer.status}`;
    throw new Error(said.startsWith("{") ? JSON.parse(said).error : said);
  };

  const poll = async () => {
    try {
      const answer = await ask("status.json", { cache: "no-store", signal: AbortSignal.timeout(10000) });
      take(await answer.json(), Number(answer.headers.get("Age") || 0));
    } catch (error) {
      trouble = error instanceof TypeError ? "" : error.message;
      mood();
    }
  };

  let source = null, opened, streamed;
  const follow = () => {
    if (source) source.close();
    source = new EventSource("events");
    opened = now();
    source.addEventListener("status", (event) => {
      streamed = now();
      const said = JSON.parse(event.data);
      take(said.status, said.age);
    });
    source.addEventListener("trouble", (event) => {
      streamed = now();
      trouble = JSON.parse(event.data);
      mood();
    });
  };

  let asked = 0;
  const find = async () => {
    const turn = ++asked; // the answer to another question may come later
    const typed = $("glob").value.trim();
    const glob = /[*?[]/.test(typed) ? typed : `*${typed}*`;
    try {
      const answer = await ask(`minions.json?limit=200&glob=${encodeURIComponent(glob)}`,
        { signal: AbortSignal.timeout(MINIONS * 1000) });
      const found = await answer.json();
      if (turn !== asked) return;
      const online = found.online || {};
      const counted = ["online", "offline", "unknown"]
        .filter((word) => online[word] || word !== "unknown")
        .map((word) => `${number(online[word])} ${word}`).join(" · ");
      say("online", counted);
      const counts = Object.entries(found.counts || {}).map(([state, n]) => `${number(n)} ${state}`);
      const missing = Object.keys(found.unknown || {});
      say("found", `${number(found.total)} match${found.total === 1 ? "es" : ""}` +
        (counts.length ? `: ${counts.join(", ")}` : "") +
        (found.total > found.minions.length ? `; the first ${found.minions.length}` : "") +
        (missing.length ? `; not asked: ${missing.join(", ")}` : ""));
      $("minions").hidden = !found.minions.length;
      fill($("hits"), found.minions.map((minion) => {
        const tr = make("tr");
        tr.append(make("th", minion.id, { scope: "row" }),
          make("td", minion.state, { "data-label": "State" }),
          make("td", (minion.masters || []).join(", ") || "none known", { "data-label": "Masters" }));
        return tr;
      }));
    } catch (error) {
      if (turn !== asked) return;
      say("online", UNKNOWN_ONLINE);
      say("found", `not found out: ${error.message}`);
      $("minions").hidden = true;
    }
  };

  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    say("found", "asking the masters…");
    find();
  });
  follow();
  streamed = opened;
  setInterval(() => {
    // The stream is late, or there are too many that follow: ask.
    if (since(streamed) > POLL - 1) poll();
    // A browser does not try again after it was refused, nor notice that a connection is dead.
    if (source.readyState === EventSource.CLOSED || Math.min(since(streamed), since(opened)) > OLD) follow();
  }, POLL * 1000);
  const look = () => {
    if (asked && !document.hidden) find();
  };
  setInterval(look, MINIONS * 1000);
  document.addEventListener("visibilitychange", look);
  setInterval(mood, 1000);
})();
