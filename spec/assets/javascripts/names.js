// The only place that names what the theme leaves without a name for those who listen to a page.
(() => {
  const name = () => {
    document.querySelectorAll(".md-search[role=dialog]").forEach((found) => found.setAttribute("aria-label", "Search"));
    document.querySelectorAll(".md-version__current").forEach((found) => {
      const words = `${found.textContent.trim()}: select version`;
      if (found.getAttribute("aria-label") !== words) found.setAttribute("aria-label", words);
    });
    document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((found) => {
      if (found.scrollWidth <= found.clientWidth) return;
      found.setAttribute("tabindex", "0");
      found.setAttribute("role", "group");
      found.setAttribute("aria-label", "Table, wider than the page");
    });
  };
  name();
  [".md-header", ".md-content"].forEach((part) => {
    new MutationObserver(name).observe(document.querySelector(part), { childList: true, subtree: true });
  });
})();
