// The page of the playground: what is typed goes to the worker, what it finds is shown, and plans are searched there.
(() => {
  const root = document.getElementById("ts-playground");
  if (!root) return;
  const base = new URL(root.dataset.assets, document.baseURI);
  const find = (name) => root.querySelector(`[data-part="${name}"]`);
  const PARTS = ["examples", "files", "editor", "status", "findings", "share", "models", "ranks", "search", "planned"];
  const [picker, tabs, place, status, list, sharer, models, ranks, searcher, planned] = PARTS.map(find);
  const NAMES = ["cluster.yaml", "plan.yaml", "checkpoint.yaml", "job.jsonl"];
  const PAUSE_MILLISECONDS = 250;
  const SHARED = "#files=";
  const MOST_SHARED_BYTES = 1_000_000;
  let files = {};
  let shown = NAMES[0];
  let sent = 0;
  let timer = 0;
  let worker = null;
  let editor = null;
  let isSearching = false;

  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    made.append(...children);
    return made;
  };

  const say = (text) => {
    status.textContent = text;
  };

  const drawTabs = (counts = {}) => {
    tabs.replaceChildren(
      ...NAMES.map((name) => {
        const words = counts[name] ? `${name} (${counts[name]})` : name;
        const button = element("button", { type: "button", "aria-pressed": String(name === shown) }, words);
        button.addEventListener("click", () => open(name));
        return button;
      }),
    );
  };

  let lastCounts = {};
  let lastFindings = [];

  const of = (finding) => finding.path.split("/").pop();

  const open = (name) => {
    shown = name;
    editor.show(name, files[name] ?? "");
    editor.mark(lastFindings.filter((finding) => of(finding) === name));
    drawTabs(lastCounts);
  };

  const goTo = (finding) => {
    if (NAMES.includes(of(finding)) && of(finding) !== shown) open(of(finding));
    editor.goTo(finding);
  };

  const address = (finding) => {
    const found = /\/v1\/([^/]+)\/#(.+)$/.exec(finding.url);
    return found ? new URL(`../../v1/${found[1]}/#${found[2]}`, base).href : finding.url;
  };

  const item = (finding) => {
    const button = element("button", { type: "button", class: "ts-place" }, `${finding.path}:${finding.line}`);
    button.addEventListener("click", () => goTo(finding));
    return element(
      "li",
      { class: `ts-finding ts-finding-${finding.severity}`, "data-requirement": finding.requirement },
      element(
        "p",
        {},
        element("strong", {}, finding.severity),
        " ",
        element("a", { href: address(finding) }, finding.requirement),
        ` ${finding.name}: ${finding.message} `,
        button,
      ),
      element("pre", { tabindex: "0", "aria-label": `Excerpt of ${finding.path}` }, element("code", {}, finding.excerpt)),
    );
  };

  const show = (result) => {
    lastCounts = {};
    lastFindings = result.findings;
    result.findings.forEach((one) => {
      lastCounts[of(one)] = (lastCounts[of(one)] ?? 0) + 1;
    });
    drawTabs(lastCounts);
    editor.mark(lastFindings.filter((finding) => of(finding) === shown));
    list.replaceChildren(...result.findings.map(item));
    const words = result.num_findings === 1 ? "1 finding" : `${result.num_findings || "no"} findings`;
    const more = result.num_findings > result.findings.length ? `, the first ${result.findings.length} are shown` : "";
    const kept = "pass" in result.outcomes ? `; ${result.outcomes.pass} requirements hold` : "";
    say([`${words}${more}${kept}.`, ...result.problems].join(" "));
  };

  const judge = () => {
    const given = Object.fromEntries(Object.entries(files).filter(([, text]) => text.trim()));
    sent += 1;
    if (!Object.keys(given).length) {
      [lastCounts, lastFindings] = [{}, []];
      drawTabs();
      editor.mark([]);
      list.replaceChildren();
      say("Nothing to judge yet.");
      return;
    }
    root.setAttribute("aria-busy", "true");
    worker.postMessage({ number: sent, files: given });
  };

  const typed = (text) => {
    files[shown] = text;
    clearTimeout(timer);
    timer = setTimeout(judge, PAUSE_MILLISECONDS);
  };

  const through = async (bytes, transform) => {
    const reader = new Blob([bytes]).stream().pipeThrough(transform).getReader();
    const parts = [];
    for (let size = 0, part = await reader.read(); !part.done; part = await reader.read()) {
      size += part.value.length;
      if (size > MOST_SHARED_BYTES) throw new RangeError("the text is too long to share");
      parts.push(part.value);
    }
    return new Uint8Array(await new Blob(parts).arrayBuffer());
  };

  const share = async () => {
    try {
      const packed = await through(new TextEncoder().encode(JSON.stringify(files)), new CompressionStream("gzip"));
      const text = btoa(Array.from(packed, (byte) => String.fromCharCode(byte)).join(""));
      history.replaceState(null, "", SHARED + text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", ""));
      await navigator.clipboard.writeText(location.href);
      say("The link is copied. It holds the text itself, after the #, which browsers send to no server.");
    } catch (error) {
      say(`The address of this page is the link; it could not be copied: ${error.message}`);
    }
  };

  const shared = async () => {
    if (!location.hash.startsWith(SHARED)) return null;
    try {
      const text = atob(location.hash.slice(SHARED.length).replaceAll("-", "+").replaceAll("_", "/"));
      const packed = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
      const given = JSON.parse(new TextDecoder().decode(await through(packed, new DecompressionStream("gzip"))));
      return Object.fromEntries(NAMES.filter((name) => typeof given[name] === "string").map((name) => [name, given[name]]));
    } catch {
      say("The link holds no text that can be read; the first example is shown.");
      return null;
    }
  };

  const searching = (state, words = "") => {
    isSearching = state;
    searcher.textContent = state ? "Stop the search" : "Search a plan";
    planned.textContent = words;
  };

  const take = ({ files: made, words }) => {
    searching(false, words);
    if (!Object.keys(made).length) return;
    files = { ...files, ...made };
    open("plan.yaml");
    judge();
  };

  const hire = () => {
    worker = new Worker(new URL("worker.js", base), { type: "module" });
    worker.onmessage = receive;
    worker.onerror = (error) => say(`The validator does not work here: ${error.message}`);
  };

  // Python does not look up while it searches, so a search is stopped with its worker.
  const search = () => {
    if (isSearching) {
      worker.terminate();
      hire();
      searching(false, "The search was stopped.");
      judge();
      return;
    }
    searching(true, "Searching: layouts are compared by their predicted step time.");
    worker.postMessage({ kind: "plan", asked: { files, model: models.value, num_ranks: Number(ranks.value) || 0 } });
  };

  const receive = ({ data }) => {
    if (data.kind === "searching") planned.textContent = `Searching: ${data.done} of ${data.total} layouts.`;
    if (data.kind === "planned") take(data.result);
    if (data.kind === "failed" && isSearching) searching(false, `The search failed: ${data.message}`);
    else if (data.kind === "failed") say(`The validator does not work here: ${data.message}`);
    if (data.kind === "judged" && data.number === sent) {
      show(data.result);
      root.setAttribute("aria-busy", "false");
    }
  };

  const start = async () => {
    drawTabs();
    if (location.protocol === "file:") {
      say("Opened as a file, this page may not load the validator: browsers allow it from a web server only. Run python3 -m http.server in the folder of the site.");
      root.setAttribute("aria-busy", "false");
      return;
    }
    let manifest;
    try {
      manifest = await (await fetch(new URL("manifest.json", base))).json();
      editor = (await import(new URL("editor.js", base))).openEditor(place, typed);
    } catch {
      say("This copy of the site has no validator in it. A site built by `make site` with npm at hand has.");
      root.setAttribute("aria-busy", "false");
      return;
    }
    picker.append(...Object.keys(manifest.examples).map((title) => element("option", {}, title)));
    models.append(...manifest.models.map((name) => element("option", { value: name }, name)));
    hire();
    picker.addEventListener("change", () => {
      files = { ...(manifest.examples[picker.value] ?? {}) };
      open(NAMES.find((name) => files[name]) ?? NAMES[0]);
      judge();
    });
    picker.disabled = false;
    sharer.disabled = false;
    sharer.addEventListener("click", share);
    [models, ranks, searcher].forEach((part) => {
      part.disabled = false;
    });
    searcher.addEventListener("click", search);
    const given = await shared();
    if (given) {
      files = given;
      open(NAMES.find((name) => files[name]) ?? NAMES[0]);
      judge();
    } else {
      picker.selectedIndex = 1;
      picker.dispatchEvent(new Event("change"));
    }
    say(`Loading the validator: ${Math.round(manifest.num_bytes / 1e6)} MB, once.`);
  };
  start();
})();
