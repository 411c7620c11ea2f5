// Lists the requirements of a chapter at the side of the page of each of them.
(() => {
  const chapters = {}; // "ID title" of each requirement by its chapter: tools/trainspec_site/stage.py writes it
  const side = document.querySelector(".md-sidebar--primary .md-sidebar__inner");
  const id = document.getElementById("ts-rule") && document.querySelector("h1").textContent.slice(0, "TS-PAR-001".length);
  const [chapter, rules] = Object.entries(chapters).find(([, all]) => all.some((one) => one.startsWith(id))) || [];
  if (!side || !rules) return;
  const top = new URL("../../", document.currentScript.src);
  const element = (tag, names, ...children) => {
    const made = document.createElement(tag);
    made.className = names;
    made.append(...children);
    return made;
  };
  const item = (words, place) => {
    const link = element("a", "md-nav__link", words);
    link.href = new URL(place, top);
    if (id && words.startsWith(id)) {
      link.classList.add("md-nav__link--active");
      link.setAttribute("aria-current", "page");
    }
    return element("li", "md-nav__item", link);
  };
  const address = (words) => `rules/${words.slice("TS-".length, "TS-PAR".length)}/${words.split(" ")[0]}/`;
  const name = `Chapter: ${chapter.replace(/^\d+-/, "").replaceAll("-", " ")}`;
  const items = [item(name, `v1/${chapter}/`), ...rules.map((words) => item(words, address(words)))];
  const list = element("nav", "md-nav ts-neighbours", element("ul", "md-nav__list", ...items));
  list.setAttribute("aria-label", "Requirements of the chapter");
  side.append(list);
})();
