// The only place for what a reader needs who opens the pages as files, without a server: ways to pages and the search.
(() => {
  if (location.protocol !== "file:") return;
  const here = document.currentScript.src;

  // A folder has no first page where nobody serves it.
  const lead = (event) => {
    const link = event.target.closest?.("a[href]");
    if (link && link.protocol === "file:" && link.pathname.endsWith("/")) link.pathname += "index.html";
  };
  ["click", "auxclick", "contextmenu", "dragstart"].forEach((kind) => document.addEventListener(kind, lead, true));

  const say = (words) => {
    const banner = document.querySelector(".md-banner__inner");
    if (!banner) return;
    const line = document.createElement("p");
    line.className = "ts-from-files";
    line.textContent = words;
    banner.append(line);
  };
  const served = "need a web server: run python3 -m http.server in the folder of the site";
  let searches = true;
  document.addEventListener("DOMContentLoaded", () => {
    say(
      searches
        ? `You read this from files. The playground and the choice of a version ${served}.`
        : `You read this from files. The search, the playground and the choice of a version ${served}.`,
    );
  });

  // Stands in for the worker of the search, which browsers do not start from a file.
  window.tsNoSearch = () => {
    searches = false;
  };
  document.write(`<script src="${new URL("iframe-worker.js", here)}" onerror="tsNoSearch()"><\/script>`);
})();
