// The only place that names what the theme leaves without a name for those who listen to a page.
(() => {
  const name = () => {
    document.querySelectorAll(".md-search[role=dialog]").forEach((found) => found.setAttribute("aria-label", "Search"));
    document.querySelectorAll(".md-version__current").forEach((found) => {
      const words = `${found.textContent.trim()}: select version`;
      if (found.getAttribute("aria-label") !== words) found.setAttribute("aria-label", words);
    });
  };
  name();
  new MutationObserver(name).observe(document.querySelector(".md-header"), { childList: true, subtree: true });
})();
