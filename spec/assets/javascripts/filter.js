// The only place for the filters above tables: a text, and a choice for each column that the page names.
(() => {
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    made.append(...children);
    return made;
  };

  const filtered = (box) => {
    const table = box.querySelector("table");
    if (!table) return;
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    const rows = [...table.tBodies[0].rows];
    const text = element("input", { type: "search", placeholder: "word or id" });
    const count = element("output", { "aria-live": "polite" });
    const choices = box.dataset.filters.split(",").map((head) => {
      const column = heads.indexOf(head);
      const parts = (row) => row.cells[column].textContent.split(",").map((part) => part.trim());
      const select = element("select", {}, element("option", { value: "" }, "all"));
      const values = [...new Set(rows.flatMap(parts))].filter(Boolean).sort();
      values.forEach((value) => select.append(element("option", {}, value)));
      return { head, parts, select };
    });
    const apply = () => {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      let num = 0;
      rows.forEach((row) => {
        const content = row.textContent.toLowerCase();
        const kept =
          words.every((word) => content.includes(word)) &&
          choices.every(({ parts, select }) => !select.value || parts(row).includes(select.value));
        row.hidden = !kept;
        num += kept;
      });
      count.textContent = `${num} of ${rows.length}`;
    };
    const bar = element("div", { class: "ts-filter", role: "search", "aria-label": "Filter of the table" });
    bar.append(element("label", {}, "contains", text));
    choices.forEach(({ head, select }) => bar.append(element("label", {}, head, select)));
    bar.append(count);
    bar.addEventListener("input", apply);
    box.prepend(bar);
    apply();
  };
  document.querySelectorAll(".ts-filterable").forEach(filtered);
})();
